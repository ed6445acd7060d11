"""The plan of a job: as text, as JSON and as a picture, with the delivery guarantee of each sink.

A guarantee is computed from the graph alone: from whether all sources upstream of the sink can be
read again, the kind of sink, and the checkpointing mode.  ``guarantee_table`` computes all
combinations for ``docs/concepts/guarantees.md``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Final

from millstream.configuration import options
from millstream.configuration.options import CheckpointingMode
from millstream.contracts.sink import DeliveryGuarantee, SinkKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.graph.model import JobGraph, StreamEdge, StreamNode


# -- text ------------------------------------------------------------------------------------------


_TYPE_WIDTH = 60


def explain(job_graph: JobGraph) -> str:
    """The plan as text of some lines, ending in a newline."""
    return "\n".join(_lines(job_graph)) + "\n"


def _lines(job_graph: JobGraph) -> Iterator[str]:
    mode = "batch" if job_graph.batch_mode else "streaming"
    stages, operators = len(job_graph.stages), len(job_graph.nodes)
    yield (
        f"Job '{job_graph.job_name}' ({mode}): {_count(operators, 'operator')} "
        f"in {_count(stages, 'stage')}"
    )
    width = max(len(_title(node)) for node in job_graph.nodes.values())
    for stage in job_graph.stages:
        yield ""
        yield f"Stage {stage.level}, parallelism {stage.parallelism}"
        for number in stage.nodes:
            node = job_graph.nodes[number]
            yield f"  {_title(node):<{width}}  {node.location}".rstrip()
            inputs = job_graph.inputs(number)
            numbered = any(edge.input_index for edge in inputs)
            for edge in inputs:
                which = f"input {edge.input_index + 1} " if numbered else ""
                yield f"        {which}<- {_source(job_graph, edge)}"
            yield f"        uid {node.uid}"
            if node.kind != "sink":
                yield f"        type {_short(str(node.output_type))}"
            for tag in sorted(node.side_types):
                yield f"        side output '{tag}' type {_short(str(node.side_types[tag]))}"
    yield ""
    yield "Guarantees"
    for each in sink_guarantees(job_graph):
        yield f"  [{each.node}] {job_graph.nodes[each.node].name}: {guarantee_words(each)}"


def guarantee_words(guarantee: SinkGuarantee) -> str:
    """A guarantee with its reasons, such as "at-least-once (the sink may ...)"."""
    why = (*guarantee.reasons, *guarantee.notes)
    return guarantee.guarantee + (f" ({'; '.join(why)})" if why else "")


def edge_words(edge: StreamEdge) -> str:
    """How records travel along an edge, such as "hash, pre-aggregated, side output 'late'"."""
    words = [edge.partitioning.value]
    if edge.combiner is not None:
        words.append("pre-aggregated")
    if edge.tag is not None:
        words.append(f"side output '{edge.tag}'")
    return ", ".join(words)


def _source(job_graph: JobGraph, edge: StreamEdge) -> str:
    return f"[{edge.source}] {job_graph.nodes[edge.source].name}: {edge_words(edge)}"


def _title(node: StreamNode) -> str:
    return f"[{node.id}] {node.name} x{node.parallelism}"


def _short(text: str) -> str:
    return text if len(text) <= _TYPE_WIDTH else text[: _TYPE_WIDTH - 3] + "..."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# -- JSON ------------------------------------------------------------------------------------------


_PACTS = {"source": "Data Source", "sink": "Data Sink", "operator": "Operator"}


def execution_plan(job_graph: JobGraph) -> str:
    """The plan as JSON text: ``{"nodes": [{"id", "type", "pact", ..., "predecessors"}]}``."""
    nodes = [_node(job_graph, job_graph.nodes[number]) for number in sorted(job_graph.nodes)]
    return json.dumps({"nodes": nodes}, indent=2)


def _node(job_graph: JobGraph, node: StreamNode) -> dict[str, object]:
    described: dict[str, object] = {
        "id": node.id,
        "type": node.name,
        "pact": _PACTS[node.kind],
        "contents": node.name,
        "parallelism": node.parallelism,
        "uid": node.uid,
        "stage": job_graph.level(node.id),
        "location": node.location,
    }
    inputs = job_graph.inputs(node.id)
    if inputs:
        described["predecessors"] = [
            {
                "id": edge.source,
                "ship_strategy": edge.partitioning.name,
                "side": _side(edge, inputs),
            }
            | ({"side_output": edge.tag} if edge.tag is not None else {})
            for edge in inputs
        ]
    return described


def _side(edge: StreamEdge, inputs: list[StreamEdge]) -> str:
    """Flink's word for the input that an edge leads to; of a single input it says "second" too."""
    two = any(each.input_index for each in inputs)
    return "first" if two and edge.input_index == 0 else "second"


# -- picture ---------------------------------------------------------------------------------------


_BOX_WIDTH: Final = 210
_BOX_HEIGHT: Final = 62
_COLUMN_GAP: Final = 76
_STAGE_GAP: Final = 118
_ROW_GAP: Final = 26
_LANE: Final = 16
_MARGIN: Final = 28
_STAGE_PADDING: Final = 18
_HEADER: Final = 84
_NAME_LENGTH: Final = 22
_PLACE_LENGTH: Final = 24

_COLORS: Final = {
    "source": ("#e3f4ea", "#2f8f5b"),
    "operator": ("#e8f0fc", "#3a6fc4"),
    "sink": ("#fdf0dd", "#c27a17"),
}
_STYLE: Final = (
    "text{font-family:-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2933}"
    ".title{font-size:20px;font-weight:600}.soft{font-size:12px;fill:#66727f}"
    ".stage{font-size:13px;font-weight:600;fill:#52606d}.name{font-size:13px;font-weight:600}"
    ".edge{fill:none;stroke:#7b8794;stroke-width:1.6}.exchange{stroke:#3a6fc4;stroke-width:2.2}"
    ".side{stroke-dasharray:6 4}.label{font-size:11px;fill:#3a6fc4;text-anchor:middle}"
    ".halo{font-size:11px;text-anchor:middle;stroke:#ffffff;stroke-width:4px;"
    "stroke-linejoin:round}"
)
_ARROW: Final = (
    '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
    'markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#52606d"/></marker></defs>'
)


@dataclass(slots=True)
class _Item:
    """A box, or a point that an edge passes through on its way over several columns."""

    column: int
    height: int
    inputs: list[_Item] = field(default_factory=list)
    node: StreamNode | None = None
    y: float = 0.0


@dataclass(slots=True)
class _Layout:
    items: list[_Item]
    boxes: dict[int, _Item]
    paths: list[tuple[StreamEdge, list[_Item]]]
    lefts: list[int]
    height: float
    #: Level -> (first column, last column).
    spans: dict[int, tuple[int, int]]


def picture(job_graph: JobGraph) -> str:
    """The job as the text of an SVG file."""
    layout = _lay_out(job_graph)
    width = layout.lefts[-1] + _BOX_WIDTH + _MARGIN + _STAGE_PADDING
    height = layout.height + _MARGIN + _STAGE_PADDING
    mode = "batch" if job_graph.batch_mode else "streaming"
    summary = f"{mode}, {len(job_graph.nodes)} operators in {len(job_graph.stages)} stages"
    size = f'width="{width}" height="{height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height:.0f}" {size}>',
        f"<title>{escape(job_graph.job_name)}</title>",
        f"<style>{_STYLE}</style>",
        _ARROW,
        f'<rect {size} fill="#ffffff"/>',
        f'<text class="title" x="{_MARGIN}" y="34">{escape(job_graph.job_name)}</text>',
        f'<text class="soft" x="{_MARGIN}" y="54">{summary}</text>',
        *_stages(job_graph, layout),
        *(_curve(layout, edge, items) for edge, items in layout.paths),
        *_boxes(job_graph, layout),
        *_labels(layout),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _lay_out(job_graph: JobGraph) -> _Layout:
    columns, spans = _columns(job_graph)
    lefts = _lefts(spans)
    boxes: dict[int, _Item] = {}
    items: list[_Item] = []
    paths: list[tuple[StreamEdge, list[_Item]]] = []
    for stage in job_graph.stages:
        for number in stage.nodes:
            item = _Item(columns[number], _BOX_HEIGHT, node=job_graph.nodes[number])
            boxes[number] = item
            items.append(item)
            for edge in job_graph.inputs(number):
                path = [boxes[edge.source]]
                for column in range(columns[edge.source] + 1, columns[number]):
                    lane = _Item(column, _LANE, inputs=[path[-1]])
                    path.append(lane)
                    items.append(lane)
                item.inputs.append(path[-1])
                paths.append((edge, [*path, item]))
    bottom = _place_rows(items)
    return _Layout(items, boxes, paths, lefts, bottom, spans)


def _columns(job_graph: JobGraph) -> tuple[dict[int, int], dict[int, tuple[int, int]]]:
    """The column of each operator, and which columns each stage has."""
    columns: dict[int, int] = {}
    spans: dict[int, tuple[int, int]] = {}
    first = 0
    for stage in job_graph.stages:
        for number in stage.nodes:
            before = [columns[edge.source] + 1 for edge in job_graph.inputs(number)]
            columns[number] = max([first, *before])
        last = max(columns[number] for number in stage.nodes)
        spans[stage.level] = (first, last)
        first = last + 1
    return columns, spans


def _lefts(spans: dict[int, tuple[int, int]]) -> list[int]:
    """The left edge of each column."""
    lefts: list[int] = []
    x = _MARGIN + _STAGE_PADDING
    for first, last in spans.values():
        for column in range(first, last + 1):
            lefts.append(x)
            x += _BOX_WIDTH + (_COLUMN_GAP if column < last else _STAGE_GAP)
    return lefts


def _place_rows(items: list[_Item]) -> float:
    """Give each item its centre, near the mean of its inputs; return the lowest bottom."""
    by_column: dict[int, list[_Item]] = defaultdict(list)
    for item in items:
        by_column[item.column].append(item)
    top = _HEADER + _STAGE_PADDING + 22
    for column in sorted(by_column):
        members = by_column[column]
        wanted = {
            id(item): sum(each.y for each in item.inputs) / len(item.inputs)
            if item.inputs
            else top + _BOX_HEIGHT / 2
            for item in members
        }
        members.sort(key=lambda item: wanted[id(item)])
        free = float(top)
        for item in members:
            item.y = max(wanted[id(item)], free + item.height / 2)
            free = item.y + item.height / 2 + _ROW_GAP
    return max(item.y + item.height / 2 for item in items)


def _stages(job_graph: JobGraph, layout: _Layout) -> list[str]:
    parts = []
    for stage in job_graph.stages:
        first, last = layout.spans[stage.level]
        left = layout.lefts[first] - _STAGE_PADDING
        width = layout.lefts[last] + _BOX_WIDTH + _STAGE_PADDING - left
        height = layout.height + _STAGE_PADDING - _HEADER + 6
        parts.append(
            f'<rect x="{left}" y="{_HEADER - 6}" width="{width}" height="{height:.0f}" rx="12" '
            'fill="#f6f8fa" stroke="#d9e0e7"/>'
            f'<text class="stage" x="{left + 14}" y="{_HEADER + 16}">Stage {stage.level} '
            f"\u00b7 parallelism {stage.parallelism}</text>"
        )
    return parts


def _boxes(job_graph: JobGraph, layout: _Layout) -> list[str]:
    guarantees = {each.node: each.guarantee for each in sink_guarantees(job_graph)}
    parts = []
    for number, item in layout.boxes.items():
        node = job_graph.nodes[number]
        fill, line = _COLORS[node.kind]
        left, top = layout.lefts[item.column], item.y - _BOX_HEIGHT / 2
        second = f"\u00d7{node.parallelism} \u00b7 {_cut(node.location, _PLACE_LENGTH)}"
        if number in guarantees:
            second = f"\u00d7{node.parallelism} \u00b7 {guarantees[number]}"
        parts.append(
            f"<g><title>{escape(_tooltip(node))}</title>"
            f'<rect x="{left}" y="{top:.1f}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="9" '
            f'fill="{fill}" stroke="{line}" stroke-width="1.4"/>'
            f'<text class="name" x="{left + 12}" y="{top + 27:.1f}">'
            f"{escape(_cut(node.name, _NAME_LENGTH))}</text>"
            f'<text class="soft" x="{left + 12}" y="{top + 47:.1f}">{escape(second)}</text></g>'
        )
    return parts


def _tooltip(node: StreamNode) -> str:
    return f"{node.name}\n{node.location}\nuid {node.uid}\n{node.output_type}"


def _curve(layout: _Layout, edge: StreamEdge, items: list[_Item]) -> str:
    """One smooth line from box to box through the points between them."""
    x, y = layout.lefts[items[0].column] + _BOX_WIDTH, items[0].y
    path = f"M{x},{y:.1f}"
    for item in items[1:]:
        left = layout.lefts[item.column]
        half = (left - x) / 2
        path += f" C{x + half:.1f},{y:.1f} {left - half:.1f},{item.y:.1f} {left},{item.y:.1f}"
        x, y = left, item.y
        if item.node is None:
            x = left + _BOX_WIDTH
            path += f" L{x},{y:.1f}"
    classes = "edge" + (" exchange" if edge.partitioning.is_exchange else "")
    classes += " side" if edge.tag is not None else ""
    return f'<path class="{classes}" d="{path}" marker-end="url(#arrow)"/>'


def _labels(layout: _Layout) -> list[str]:
    """How records travel, in the gap before the box they reach; only where it is of interest."""
    parts: list[str] = []
    taken: dict[int, list[float]] = defaultdict(list)
    for edge, items in layout.paths:
        words = [edge.partitioning.value] if edge.partitioning.is_exchange else []
        if edge.combiner is not None:
            words.append("pre-aggregated")
        if edge.tag is not None:
            words.append(edge.tag)
        if not words:
            continue
        last, before = items[-1], items[-2]
        right = layout.lefts[last.column]
        left = layout.lefts[before.column] + _BOX_WIDTH
        x = (left + right) / 2
        y = (last.y + before.y) / 2 - 6
        while any(abs(y - other) < _LANE for other in taken[last.column]):
            y += _LANE
        taken[last.column].append(y)
        lines = [_cut(word, _PLACE_LENGTH) for word in words]
        for index, line in enumerate(lines):
            shift = y + 13 * index - 6.5 * (len(lines) - 1)
            # Twice: first a white outline, so that the text can be read across edges.
            parts.extend(
                f'<text class="{style}" x="{x:.1f}" y="{shift:.1f}">{escape(line)}</text>'
                for style in ("halo", "label")
            )
    return parts


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "\u2026"


# -- guarantees ------------------------------------------------------------------------------------


_EXACTLY: Final = DeliveryGuarantee.EXACTLY_ONCE
_AT_LEAST: Final = DeliveryGuarantee.AT_LEAST_ONCE

_BY_KEY: Final = (
    "rows are replaced by key: while the job recovers, readers may see values go back; a replay"
    " must make the same keys"
)
_BY_RUN: Final = (
    f"as long as the driver lives: {options.CHECKPOINTS_DIRECTORY.key} is not set, so a driver that"
    " is started again restarts from scratch"
)
#: The rows of the table: what to call a sink, its kind, what it promises.
_ROWS: Final = (
    ("any sink (print)", SinkKind.ANY, _AT_LEAST),
    ("idempotent (`UpsertSink`)", SinkKind.IDEMPOTENT, _EXACTLY),
    ("write-ahead, number written after the values", SinkKind.WRITE_AHEAD, _AT_LEAST),
    ("write-ahead, number written with the values", SinkKind.WRITE_AHEAD, _EXACTLY),
    ("two-phase (files, collect)", SinkKind.TWO_PHASE, _EXACTLY),
)


@dataclass(frozen=True, slots=True)
class SinkGuarantee:
    """The guarantee for the records of one sink."""

    node: int
    #: "exactly-once", "at-least-once", "at-most-once" or "none".
    guarantee: str
    #: Why it is not more; empty for exactly-once.
    reasons: tuple[str, ...] = ()
    #: What the guarantee means here, where that needs saying.
    notes: tuple[str, ...] = ()


def combine(
    kind: SinkKind,
    own: DeliveryGuarantee,
    mode: CheckpointingMode,
    lost: tuple[str, ...] = (),
    *,
    pipelined: bool = False,
    commits: bool = True,
) -> tuple[str, tuple[str, ...]]:
    """The guarantee of a sink in a job, and the reasons why it is not exactly-once.

    Args:
        kind: how the sink works.
        own: what it promises in mode EXACTLY_ONCE.
        mode: the job's.
        lost: a reason for each source above it that cannot be read again.
        pipelined: tasks are long-running.
        commits: the sink shows what it writes when the checkpoint is complete, not before.
    """
    key = options.CHECKPOINTING_MODE.key
    if own is DeliveryGuarantee.NONE:
        return "none", ("the sink promises nothing", *lost)
    if mode is CheckpointingMode.NONE and pipelined and not commits:
        # How far sources are read is known after a barrier, and the sink does not wait for that.
        return "none", (f"{key} is NONE: what came after a checkpoint is shown again", *lost)
    if mode is CheckpointingMode.NONE:
        return "at-most-once", (f"{key} is NONE: a checkpoint that fails is not run again", *lost)
    repeated = []
    if own is DeliveryGuarantee.AT_LEAST_ONCE:
        repeated.append("the sink may write records again after a failure")
    elif kind is SinkKind.TWO_PHASE and not commits:
        repeated.append("the sink has no committer, so it writes records again after a failure")
    # Epochs repeat output alone; long-running tasks count records twice in their state as well.
    if mode is CheckpointingMode.AT_LEAST_ONCE and (pipelined or kind is not SinkKind.IDEMPOTENT):
        repeated.append(f"{key} is AT_LEAST_ONCE")
    if lost and repeated:
        word = "none"
    elif lost:
        word = "at-most-once"
    else:
        word = "at-least-once" if repeated else "exactly-once"
    return word, (*lost, *repeated)


def sink_guarantees(job_graph: JobGraph) -> list[SinkGuarantee]:
    """The guarantee of each sink, in order of node id."""
    mode = CheckpointingMode[job_graph.configuration.get(options.CHECKPOINTING_MODE)]
    return [
        _guarantee(job_graph, node, mode)
        for _, node in sorted(job_graph.nodes.items())
        if node.sink is not None
    ]


def guarantee_table() -> str:
    """All combinations as a table in Markdown, a footnote mark where ``notes`` has something."""
    columns = [(mode, replayable) for replayable in (True, False) for mode in CheckpointingMode]
    titles = [
        f"{mode.name}, {'replayable' if replayable else 'not replayable'}"
        for mode, replayable in columns
    ]
    lines = [
        "| sink \\ mode, source | " + " | ".join(titles) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for title, kind, own in _ROWS:
        cells = []
        for mode, replayable in columns:
            word, _ = combine(kind, own, mode, () if replayable else ("not replayable",))
            noted = word == "exactly-once" and kind is SinkKind.IDEMPOTENT
            cells.append(f"{word} *" if noted else word)
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _guarantee(job_graph: JobGraph, node: StreamNode, mode: CheckpointingMode) -> SinkGuarantee:
    lost = tuple(
        f"source '{source.name}' cannot be read again after a failure"
        for source in _sources(job_graph, node.id)
        if source.source is not None and not source.source.replayable
    )
    if node.sink is None:
        return SinkGuarantee(node.id, "none")
    kind = node.sink.kind
    word, reasons = combine(
        kind,
        node.sink.guarantee,
        mode,
        lost,
        pipelined=job_graph.configuration.get(options.EXECUTION) == "pipelined",
        commits=node.sink.create_committer() is not None,
    )
    notes: tuple[str, ...] = ()
    if kind is SinkKind.IDEMPOTENT and not getattr(node.sink, "fenced", False):
        notes = (_BY_KEY,)
    # What is collected goes to the driver, and dies with it.
    outlives = node.sink.outlives_the_run
    if outlives and not job_graph.configuration.get(options.CHECKPOINTS_DIRECTORY):
        # The others may repeat and lose anyway.
        notes += (_BY_RUN,) if word in {"exactly-once", "at-most-once"} else ()
    return SinkGuarantee(node.id, word, reasons, notes)


def _sources(job_graph: JobGraph, node: int) -> list[StreamNode]:
    """All sources upstream of ``node``, in order of id."""
    upstream = sorted(job_graph.upstream(job_graph.inputs(node)), key=lambda each: each.id)
    return [each for each in upstream if each.kind == "source"]
