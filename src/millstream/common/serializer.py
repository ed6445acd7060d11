"""Serializers under PyFlink's import path."""

from millstream.contracts.serialization import TypeSerializer as TypeSerializer
