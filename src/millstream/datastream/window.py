"""Windows and their assigners under PyFlink's import path."""

from millstream.functions.triggers import ContinuousEventTimeTrigger as ContinuousEventTimeTrigger
from millstream.functions.triggers import (
    ContinuousProcessingTimeTrigger as ContinuousProcessingTimeTrigger,
)
from millstream.functions.triggers import CountEvictor as CountEvictor
from millstream.functions.triggers import CountTrigger as CountTrigger
from millstream.functions.triggers import DeltaEvictor as DeltaEvictor
from millstream.functions.triggers import DeltaTrigger as DeltaTrigger
from millstream.functions.triggers import EndOfStreamTrigger as EndOfStreamTrigger
from millstream.functions.triggers import EventTimeTrigger as EventTimeTrigger
from millstream.functions.triggers import Evictor as Evictor
from millstream.functions.triggers import NeverTrigger as NeverTrigger
from millstream.functions.triggers import ProcessingTimeoutTrigger as ProcessingTimeoutTrigger
from millstream.functions.triggers import ProcessingTimeTrigger as ProcessingTimeTrigger
from millstream.functions.triggers import PurgingTrigger as PurgingTrigger
from millstream.functions.triggers import TimeEvictor as TimeEvictor
from millstream.functions.triggers import TimestampedValue as TimestampedValue
from millstream.functions.triggers import Trigger as Trigger
from millstream.functions.triggers import TriggerResult as TriggerResult
from millstream.functions.window import CountWindow as CountWindow
from millstream.functions.window import GlobalWindow as GlobalWindow
from millstream.functions.window import TimeWindow as TimeWindow
from millstream.functions.window import Window as Window
from millstream.functions.windows import CountSlidingWindowAssigner as CountSlidingWindowAssigner
from millstream.functions.windows import CountTumblingWindowAssigner as CountTumblingWindowAssigner
from millstream.functions.windows import CountWindowSerializer as CountWindowSerializer
from millstream.functions.windows import (
    DynamicEventTimeSessionWindows as DynamicEventTimeSessionWindows,
)
from millstream.functions.windows import (
    DynamicProcessingTimeSessionWindows as DynamicProcessingTimeSessionWindows,
)
from millstream.functions.windows import EventTimeSessionWindows as EventTimeSessionWindows
from millstream.functions.windows import GlobalWindows as GlobalWindows
from millstream.functions.windows import GlobalWindowSerializer as GlobalWindowSerializer
from millstream.functions.windows import MergingWindowAssigner as MergingWindowAssigner
from millstream.functions.windows import (
    ProcessingTimeSessionWindows as ProcessingTimeSessionWindows,
)
from millstream.functions.windows import (
    SessionWindowTimeGapExtractor as SessionWindowTimeGapExtractor,
)
from millstream.functions.windows import SlidingEventTimeWindows as SlidingEventTimeWindows
from millstream.functions.windows import (
    SlidingProcessingTimeWindows as SlidingProcessingTimeWindows,
)
from millstream.functions.windows import TimeWindowSerializer as TimeWindowSerializer
from millstream.functions.windows import TumblingEventTimeWindows as TumblingEventTimeWindows
from millstream.functions.windows import (
    TumblingProcessingTimeWindows as TumblingProcessingTimeWindows,
)
from millstream.functions.windows import WindowAssigner as WindowAssigner
from millstream.types.time import Time as Time
