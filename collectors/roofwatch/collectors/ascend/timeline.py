"""Where an Ascend device waited, from the same columns as for the other vendors' devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from roofwatch.collectors.ascend.common import NOTHING, Origins, Rows
from roofwatch.collectors.base import RawDevice
from roofwatch.collectors.kineto.bounds import Taken
from roofwatch.collectors.kineto.columns import Columns
from roofwatch.collectors.kineto.link import Host, Launches, host_side, launches_of
from roofwatch.collectors.kineto.timeline import with_timelines

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Mask = NDArray[np.bool_]


class Linked:
    """Device records tied to the host: ``columns.device`` has a row for each of ``rows``, in the same order."""

    def __init__(self, columns: Columns, window: Taken | None = None, backward: Mask | None = None) -> None:
        self.columns = columns
        self.host: Host = host_side(columns, window, backward)
        self.launches: Launches = launches_of(columns)

    @property
    def has_host(self) -> bool:
        """Whether there is any op to be tied to."""
        return len(self.columns.ops) > 0

    def origins(self, start: Ints) -> Origins:
        """Which op launched each record, in which phase and step.

        A record whose launch is not known is in the step that it began in.
        """
        columns, launches, ops = self.columns, self.launches, self.columns.ops
        if not len(ops) and not len(columns.host) and not len(columns.notes):
            return Origins.unknown(len(start))
        places = self.host.places(launches.thread, launches.time)
        shaped = places.shaped
        unknown = (launches.thread < 0) & ~launches.backlog
        return Origins(
            op=np.where(shaped >= 0, ops["name"][shaped], NOTHING) if len(ops) else shaped,
            op_row=shaped,
            phase=places.phase,
            module=places.module,
            backlog=launches.backlog,
            linked=places.op >= 0,
            in_step=places.in_step | (unknown & self.host.inside_steps(start)),
            names=columns.names.values_seen,
            modules=self.host.ranges.texts,
        )

    def add_timelines(self, devices: Sequence[RawDevice], rows: Rows, returned: Ints | None = None) -> None:
        """Fills in span, busy and causes of devices. Busy is a union: collectives overlap compute.

        ``returned``: when the launch of each record was over, NOTHING where that is not known.
        """
        with_timelines(
            devices, rows.device, self.columns, self.host, self.launches, rows.communication, returned=returned
        )
