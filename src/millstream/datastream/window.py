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
from millstream.functions.window_assigners import (
    CountSlidingWindowAssigner as CountSlidingWindowAssigner,
)
from millstream.functions.window_assigners import (
    CountTumblingWindowAssigner as CountTumblingWindowAssigner,
)
from millstream.functions.window_assigners import CountWindowSerializer as CountWindowSerializer
from millstream.functions.window_assigners import (
    DynamicEventTimeSessionWindows as DynamicEventTimeSessionWindows,
)
from millstream.functions.window_assigners import (
    DynamicProcessingTimeSessionWindows as DynamicProcessingTimeSessionWindows,
)
from millstream.functions.window_assigners import EventTimeSessionWindows as EventTimeSessionWindows
from millstream.functions.window_assigners import GlobalWindows as GlobalWindows
from millstream.functions.window_assigners import GlobalWindowSerializer as GlobalWindowSerializer
from millstream.functions.window_assigners import MergingWindowAssigner as MergingWindowAssigner
from millstream.functions.window_assigners import (
    ProcessingTimeSessionWindows as ProcessingTimeSessionWindows,
)
from millstream.functions.window_assigners import (
    SessionWindowTimeGapExtractor as SessionWindowTimeGapExtractor,
)
from millstream.functions.window_assigners import SlidingEventTimeWindows as SlidingEventTimeWindows
from millstream.functions.window_assigners import (
    SlidingProcessingTimeWindows as SlidingProcessingTimeWindows,
)
from millstream.functions.window_assigners import TimeWindowSerializer as TimeWindowSerializer
from millstream.functions.window_assigners import (
    TumblingEventTimeWindows as TumblingEventTimeWindows,
)
from millstream.functions.window_assigners import (
    TumblingProcessingTimeWindows as TumblingProcessingTimeWindows,
)
from millstream.functions.window_assigners import WindowAssigner as WindowAssigner
from millstream.types.time import Time as Time
