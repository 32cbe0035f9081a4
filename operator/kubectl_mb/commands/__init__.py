"""Every command, one file for each kind of work: to import this is to have them all in the group."""

from kubectl_mb.commands import handing_over, looking, ordering, planning

__all__ = ["handing_over", "looking", "ordering", "planning"]
