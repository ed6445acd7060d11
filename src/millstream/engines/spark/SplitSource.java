import java.util.Collections;
import java.util.Set;
import java.util.function.Function;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.execution.datasources.v2.python.PythonStreamingSourceOffset;
import org.apache.spark.sql.execution.streaming.sources.RateStreamMicroBatchReaderFactory$;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * What Spark asks for offsets, and that reads nothing: split_source.py has it compiled in the JVM.
 *
 * Everything is one object: it serves one query.
 */
public final class SplitSource implements SupportsRead, ScanBuilder, Scan, MicroBatchStream {
  private final StructType schema;
  private final Function offsets;

  /** @param offsets answers "initial" and "latest" with an offset as JSON; it lives in Python. */
  public SplitSource(StructType schema, Function offsets) {
    this.schema = schema;
    this.offsets = offsets;
  }

  public String name() {
    return "millstream";
  }

  public StructType schema() {
    return schema;
  }

  public Set capabilities() {
    return Collections.singleton(TableCapability.MICRO_BATCH_READ);
  }

  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    return this;
  }

  public Scan build() {
    return this;
  }

  public StructType readSchema() {
    return schema;
  }

  public String description() {
    return "millstream";
  }

  public MicroBatchStream toMicroBatchStream(String checkpoints) {
    return this;
  }

  public Offset initialOffset() {
    return offset("initial");
  }

  public Offset latestOffset() {
    return offset("latest");
  }

  private Offset offset(String request) {
    String json = (String) offsets.apply(request);
    if (json.isEmpty()) {
      throw new IllegalStateException("planning failed; the driver knows why");
    }
    return deserializeOffset(json);
  }

  /** As a data source of Python's: logs that one of these has written can be read. */
  public Offset deserializeOffset(String json) {
    return new PythonStreamingSourceOffset(json);
  }

  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    return new InputPartition[0];
  }

  /** Goes to executors, which know no class but Spark's, and has nothing to do there. */
  public PartitionReaderFactory createReaderFactory() {
    return RateStreamMicroBatchReaderFactory$.MODULE$;
  }

  public void commit(Offset end) {}

  public void stop() {}
}
