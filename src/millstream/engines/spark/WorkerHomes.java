import java.lang.reflect.Field;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.spark.SparkEnv$;
import org.apache.spark.TaskContext;
import org.apache.spark.api.python.PythonWorkerFactory;
import scala.collection.Iterator;
import scala.collection.mutable.HashMap;
import scala.collection.mutable.Queue;

/**
 * Has this JVM give each partition of a run the Python worker that had it before, if that is idle:
 * worker_homes.py has it compiled.
 *
 * Spark keeps idle workers in a queue of its own, takes the one that has waited longest, and asks
 * for none in particular; so the queue is exchanged for one that answers by the task that asks.
 */
public final class WorkerHomes implements Supplier {

  /** Exchange the queues that are not exchanged yet; returns of how many daemons the workers are. */
  public Object get() {
    try {
      return Integer.valueOf(exchangeAll());
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException(error);
    }
  }

  private int exchangeAll() throws ReflectiveOperationException {
    // Fields only: its methods name classes that Spark's jars do not have, and so cannot be listed.
    Object env = SparkEnv$.MODULE$.get();
    Field made = env.getClass().getDeclaredField("pythonWorkers");
    made.setAccessible(true);
    int count = 0;
    synchronized (env) {
      Iterator factories = ((HashMap) made.get(env)).valuesIterator();
      while (factories.hasNext()) {
        exchange((PythonWorkerFactory) factories.next());
        count++;
      }
    }
    return count;
  }

  private void exchange(PythonWorkerFactory factory) throws ReflectiveOperationException {
    Field field = PythonWorkerFactory.class.getDeclaredField("idleWorkers");
    field.setAccessible(true);
    synchronized (factory) { // as Spark does around each use of the queue
      Queue idle = (Queue) field.get(factory);
      if (idle.getClass() == Queue.class) {
        field.set(factory, new IdleWorkers(idle));
      }
    }
  }
}

/** Idle workers, of which each task gets its own. */
final class IdleWorkers extends Queue {
  /** Partitions that are remembered; those not asked for longest are forgotten. */
  private static final int MOST = 1024;

  /** Run and partition -> the worker that had it last, idle or not. */
  private final LinkedHashMap homes = new LinkedHashMap(16, 0.75f, true);

  IdleWorkers(Queue idle) {
    super(16);
    while (idle.nonEmpty()) {
      this.enqueue(idle.dequeue());
    }
  }

  /** Spark has looked that there is one. */
  public Object dequeue() {
    TaskContext task = TaskContext.get();
    String run = task == null ? null : task.getLocalProperty("millstream.run");
    if (run == null || run.isEmpty()) {
      return super.dequeue();
    }
    String key = run + "/" + task.partitionId();
    Object worker = this.remove(place(run + "/", this.homes.get(key)));
    this.homes.put(key, worker);
    if (this.homes.size() > MOST) {
      java.util.Iterator oldest = this.homes.keySet().iterator();
      oldest.next();
      oldest.remove();
    }
    return worker;
  }

  /** Where the worker is; else the first that no partition of the run would miss; else the first. */
  private int place(String run, Object home) {
    int count = this.length();
    for (int i = 0; i < count; i++) {
      if (this.apply(i) == home) {
        return i;
      }
    }
    Set missed = new HashSet();
    java.util.Iterator entries = this.homes.entrySet().iterator();
    while (entries.hasNext()) {
      Map.Entry entry = (Map.Entry) entries.next();
      if (((String) entry.getKey()).startsWith(run)) {
        missed.add(entry.getValue());
      }
    }
    for (int i = 0; i < count; i++) {
      if (!missed.contains(this.apply(i))) {
        return i;
      }
    }
    return 0;
  }
}
