"""MemorySize and SlotSharingGroup, under PyFlink's import path."""

from millstream.configuration.resources import MemorySize as MemorySize
from millstream.configuration.resources import SlotSharingGroup as SlotSharingGroup
