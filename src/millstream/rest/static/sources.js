/** How far the sources are behind: watermarks, records that wait, and Kafka's lag. */

import { getOr } from "./api.js";
import { h } from "./dom.js";
import { count, duration, isKnown, rate, watermark, whole } from "./format.js";
import { bar, card, empty, figure, row, table, words } from "./parts.js";

const SOURCES = [words("Source"), figure("Records"), figure("Out"), figure("Watermark"), figure("Watermark lag"), figure("Pending records"), figure("Caught up in")];
const PARTITIONS = [words("Topic"), figure("Partition"), words("Compared"), figure("Lag, records"), figure("Current offset"), figure("Committed offset")];
// Flink's groups: ...KafkaSourceReader.topic.T.partition.P.name
const PARTITION = /\.topic\.(.+)\.partition\.(\d+)\.(records-lag|currentOffset|committedOffset|committed-offset|current-offset)$/;
const KAFKA_LAG = /records-lag(-max)?$|\.partition\.\d+\./;

/** Load the metrics of Kafka's partitions. */
export async function load({ job, tasks }) {
  const found = await Promise.all(tasks.filter((task) => task.isSource).map(async (task) => {
    const path = `jobs/${job.jid}/vertices/${task.id}/subtasks/metrics`;
    const ids = (await getOr([], path)).map(({ id }) => id).filter((id) => KAFKA_LAG.test(id));
    return ids.length ? getOr([], `${path}?get=${ids.map(encodeURIComponent).join(",")}`) : [];
  }));
  return partitions(found.flat());
}

function partitions(metrics) {
  const found = new Map();
  for (const metric of metrics) {
    const match = PARTITION.exec(metric.id);
    if (!match) continue;
    const [, topic, number, name] = match;
    const kept = found.get(`${topic}/${number}`) ?? { topic, number: Number(number) };
    // One subtask reads a partition; others may have had it before.
    kept[name.replaceAll("-", "").toLowerCase()] = Number(metric.max ?? metric.sum);
    found.set(`${topic}/${number}`, kept);
  }
  return [...found.values()].sort((a, b) => a.topic.localeCompare(b.topic) || a.number - b.number);
}

/** Show them. */
export function render({ job, tasks }, found) {
  const sources = tasks.filter((task) => task.isSource);
  return [
    card("Sources", sources.length ? table("Sources", SOURCES, sources.map((task) => source(job, task))) : empty("The job has no sources.")),
    found.length ? card("Kafka partitions", kafka(found)) : null,
  ];
}

function source(job, task) {
  const cells = [
    h("a", { href: `#/jobs/${job.jid}/tasks/${task.id}` }, task.name),
    whole(task.recordsOut),
    rate(task.rateOut),
    watermark(task.watermark, job.now),
    duration(task.lag),
    count(task.pendingRecords),
    isKnown(task.pendingRecords) && task.rateOut ? duration((task.pendingRecords / task.rateOut) * 1000) : "–",
  ];
  return row(SOURCES, cells, { "data-key": task.id });
}

function kafka(found) {
  const most = Math.max(...found.map(({ recordslag }) => recordslag ?? 0), 1);
  return table("Kafka partitions", PARTITIONS, found.map((each) => {
    const cells = [each.topic, String(each.number), bar((each.recordslag ?? 0) / most), whole(each.recordslag), whole(each.currentoffset), whole(each.committedoffset)];
    return row(PARTITIONS, cells, { "data-key": `${each.topic} ${each.number}` });
  }));
}
