/** Lay a directed graph out in layers, so that edges lead one way and cross little. */

const SWEEPS = 4;

/**
 * Return where the boxes and edges of a graph are.
 *
 * @param {string[]} ids of the nodes
 * @param {{source: string, target: string}[]} edges
 * @param {{along: number, across: number, gapAlong: number, gapAcross: number}} size of a box, in
 *     the direction of the edges and across it, and the space between boxes
 * @returns {{boxes: Map, paths: {edge, points}[], along: number, across: number}} corners of boxes,
 *     points of edges, and the size of all
 */
export function layOut(ids, edges, size) {
  const layerOf = layers(ids, edges);
  const rows = [];
  const items = new Map();
  const put = (item) => {
    (rows[item.layer] ??= []).push(item);
    return item;
  };
  for (const id of ids) {
    items.set(id, put({ id, layer: layerOf.get(id), extent: size.across, before: [], after: [] }));
  }
  const chains = edges.map((edge) => chain(edge, items, put));
  order(rows);
  place(rows, size.gapAcross);
  const step = size.along + size.gapAlong;
  const boxes = new Map();
  for (const [id, item] of items) {
    boxes.set(id, { along: item.layer * step, across: item.middle - size.across / 2 });
  }
  const paths = edges.map((edge, index) => ({ edge, points: points(chains[index], step, size.along) }));
  const all = rows.flat();
  return {
    boxes,
    paths,
    along: rows.length * step - size.gapAlong,
    across: Math.max(...all.map((item) => item.middle + item.extent / 2), size.across),
  };
}

/** Return the layer of each node: the longest way that leads to it. */
function layers(ids, edges) {
  const incoming = new Map(ids.map((id) => [id, []]));
  for (const { source, target } of edges) incoming.get(target)?.push(source);
  const found = new Map();
  const visit = (id) => {
    if (found.has(id)) return found.get(id);
    found.set(id, 0); // so that a cycle ends
    const layer = Math.max(0, ...incoming.get(id).map((source) => visit(source) + 1));
    found.set(id, layer);
    return layer;
  };
  ids.forEach(visit);
  return found;
}

/** Connect two nodes by way of a narrow lane in each layer between them. */
function chain({ source, target }, items, put) {
  const [first, last] = [items.get(source), items.get(target)];
  const passed = [first];
  for (let layer = first.layer + 1; layer < last.layer; layer += 1) {
    passed.push(put({ layer, extent: 8, before: [], after: [] }));
  }
  passed.push(last);
  passed.slice(1).forEach((item, index) => {
    item.before.push(passed[index]);
    passed[index].after.push(item);
  });
  return passed;
}

/** Order each layer by the mean position of what it is connected to, forward and back. */
function order(rows) {
  const number = (row) => row.forEach((item, index) => (item.position = index));
  rows.forEach(number);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const forward = sweep % 2 === 0;
    for (const row of forward ? rows : [...rows].reverse()) {
      for (const item of row) {
        const near = forward ? item.before : item.after;
        item.wanted = near.length ? mean(near.map((each) => each.position)) : item.position;
      }
      row.sort((a, b) => a.wanted - b.wanted || a.position - b.position);
      number(row);
    }
  }
}

/** Place the items of each layer near what they are connected to, without overlap. */
function place(rows, gap) {
  const pack = (row, near) => {
    let free = 0;
    for (const item of row) {
      const wanted = near(item).filter((each) => each.middle !== undefined);
      const middle = wanted.length ? mean(wanted.map((each) => each.middle)) : (item.middle ?? 0);
      item.middle = Math.max(middle, free + item.extent / 2);
      free = item.middle + item.extent / 2 + gap;
    }
  };
  rows.forEach((row) => pack(row, (item) => item.before));
  [...rows].reverse().forEach((row) => pack(row, (item) => item.after));
  rows.forEach((row) => pack(row, (item) => item.before));
  const start = Math.min(...rows.flat().map((item) => item.middle - item.extent / 2));
  for (const item of rows.flat()) item.middle -= start;
}

function points(items, step, along) {
  return items.flatMap((item, index) => {
    const start = item.layer * step;
    if (index === 0) return [[start + along, item.middle]];
    if (index === items.length - 1) return [[start, item.middle]];
    return [[start, item.middle], [start + along, item.middle]];
  });
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
