"""Test the function of timers.py without running a job.

Run with ``python -m pytest testing_a_function.py`` in this directory.
"""

from timers import Silence

from millstream.testing import StreamHarness


def silences(beats):
    return beats.key_by(lambda beat: beat).process(Silence())


def test_a_silent_sensor_is_reported_once_the_watermark_has_passed_a_minute():
    with StreamHarness(silences) as harness:
        harness.process("a", 0)
        assert harness.event_time_timers() == [(60_000, "a")]
        harness.watermark(59_999)
        assert harness.outputs == []
        harness.watermark(60_000)
        assert harness.outputs == ["a silent since 0"]
        assert harness.state("times", key="a") is None


def test_a_beat_that_arrives_out_of_order_counts():
    with StreamHarness(silences) as harness:
        harness.process("a", 90_000)
        harness.process("a", 45_000)
        harness.process("a", 0)
        harness.watermark(140_000)
        assert harness.outputs == []


def test_state_and_timers_survive_a_crash():
    with StreamHarness(silences) as harness:
        harness.process("a", 0)
        harness.end_epoch()  # a checkpoint
        harness.process("a", 30_000)
        harness.crash()  # back to the checkpoint: the second beat is gone
        harness.watermark(60_000)
        assert harness.outputs == ["a silent since 0"]
