"""Programs of several ranks (E17xx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Label, Loc, UserError


class NotDistributed(UserError):
    """A remote op is given a tensor that no peer can address.

    Only a view of a window buffer, a `pld.DistributedTensor`, has a slice on every rank. Allocate
    the buffer in the host function by `pld.alloc_window_buffer`, take a view of it by `pld.window`,
    and declare the parameter as `pld.DistributedTensor[...]` all the way down.
    """

    code = "E1701"

    def __init__(self, loc: Loc, op: str, param: str, found: str) -> None:
        super().__init__(
            f"`{op}` needs a `pld.DistributedTensor` for `{param}`",
            [Label(loc, f"this is {found}")],
            helps=["pass a view made by `pld.window`, and declare it `pld.DistributedTensor`"],
        )


class BadSignal(UserError):
    """A signal is not a cell of INT32 in a window.

    `notify` adds to or sets one INT32 element of a peer's slice, `wait` compares one of the own
    slice: the offsets name one element, an entry for each axis.
    """

    code = "E1702"

    def __init__(self, loc: Loc, op: str, problem: str) -> None:
        super().__init__(
            f"`{op}`: {problem}",
            [Label(loc, "not a signal cell")],
            helps=["a signal is a `pld.DistributedTensor` of pl.INT32, and one offset per axis"],
        )


class TransferMismatch(UserError):
    """The two sides of a transfer between ranks do not agree.

    A `put` or `get` without a region moves the whole source: both sides have one shape and one
    element type. With a region, all of `dst_offsets`, `src_offsets` and `shape` are given, and it
    lies within both sides.
    """

    code = "E1703"

    def __init__(self, loc: Loc, op: str, problem: str, advice: str = "") -> None:
        super().__init__(
            f"`{op}`: {problem}",
            [Label(loc, "this does not agree")],
            helps=[advice] if advice else [],
        )


class WrongPlace(UserError):
    """A name of `pld` stands where it means nothing.

    Window buffers, views and the size of the world belong to the host function; `rank`, `nranks`,
    transfers and signals belong to kernels; collectives stand in the host function or in a kernel.
    """

    code = "E1704"

    def __init__(self, loc: Loc, op: str, where: str, belongs: str) -> None:
        super().__init__(
            f"`{op}` in {where}",
            [Label(loc, f"it belongs in {belongs}")],
        )


class BadDispatch(UserError):
    """A host function calls something that it cannot dispatch.

    A host function dispatches control programs (`@pl.jit`, `FunctionType.Orchestration`) to ranks:
    `per_rank(x[r], y[r], device=r)`, tensors before numbers. Kernels are called by these programs,
    not by the host.
    """

    code = "E1705"

    def __init__(self, loc: Loc, problem: str, advice: str) -> None:
        super().__init__(problem, [Label(loc, "cannot be dispatched")], helps=[advice])


class BadDevice(UserError):
    """`device=` names no rank of the world.

    It is a logical rank, from 0 up to the number of `device_ids`. With windows it is a constant,
    or the variable of a loop `pl.range(pld.world_size())` or of one with constant bounds and step
    1, because the ranks of a window must be known before the program runs.
    """

    code = "E1706"

    def __init__(self, loc: Loc, found: object, world: int | None = None) -> None:
        if world is None:
            message, what = "`device=` of a dispatch with windows is computed", f"`{found}`"
        else:
            message, what = f"rank {found} of a world of {world}", "no such rank"
        super().__init__(
            message,
            [Label(loc, what)],
            helps=["give a constant rank, or the variable of `for r in pl.range(pld.world_size())`"]
            if world is None
            else [f"ranks are 0 to {world - 1}: see `device_ids=` of the `DistributedConfig`"],
        )


class BadWindowBuffer(UserError):
    """A window buffer cannot be allocated or viewed like this.

    `name = pld.alloc_window_buffer(nbytes)` or `(shape, dtype=...)` allocates the same number of
    bytes on every rank; `pld.window(name, shape, dtype=...)` is a view that lies within it. A
    buffer that no dispatch gets a view of belongs to no ranks.
    """

    code = "E1707"

    def __init__(self, loc: Loc, problem: str, advice: str = "", made: Loc | None = None) -> None:
        labels = [Label(loc, "here")]
        if made is not None:
            labels.append(Label(made, "allocated here"))
        super().__init__(problem, labels, helps=[advice] if advice else [])


class NoSuchPeer(UserError):
    """A remote op names a peer outside its communication domain.

    The ranks that get views of a window buffer are its domain; peers are counted densely from 0
    within it. `pld.nranks(pld.get_comm_ctx(x))` is how many there are.
    """

    code = "E1708"

    def __init__(self, loc: Loc, op: str, peer: int, ranks: Sequence[int], name: str) -> None:
        listed = ", ".join(map(str, ranks))
        super().__init__(
            f"`{op}`: peer {peer} of a domain of {len(ranks)}",
            [Label(loc, f"`{name}` is shared by ranks {listed}")],
        )


class BadCollective(UserError):
    """A collective is called in a way that cannot work.

    All ranks of a domain call it with the same shapes, and its signal has one cell per rank (see
    the manual of the collective). Data and signal lie in different buffers.
    """

    code = "E1709"

    def __init__(self, loc: Loc, op: str, problem: str, advice: str = "") -> None:
        super().__init__(
            f"`{op}`: {problem}", [Label(loc, "here")], helps=[advice] if advice else []
        )


class RanksDeadlock(UserError):
    """No rank can go on.

    Every unfinished task waits: for a signal that nobody sends any more, for a task that waits
    itself, or for a core that a waiting task holds. The message says for each waiting task the
    cell, the value it has and the value expected, and which statement would have to notify.
    """

    code = "E1710"

    def __init__(
        self, labels: Sequence[tuple[Loc, str]], causes: Sequence[str], helps: Sequence[str] = ()
    ) -> None:
        super().__init__(
            "deadlock: no rank can go on",
            [Label(loc, text) for loc, text in labels],
            notes=causes,
            helps=helps,
        )


class RanksRace(UserError):
    """Two ranks touch the same bytes of a window, and nothing orders them.

    An access is ordered before another if a chain of signals leads from one to the other: a
    `notify` after the first, a `wait` for it before the second; or an edge between the tasks, if
    one rank makes both. Everything else depends on timing.
    """

    code = "E1711"

    def __init__(
        self, message: str, labels: Sequence[tuple[Loc, str]], notes: Sequence[str] = (),
        helps: Sequence[str] = (),
    ) -> None:  # fmt: skip
        super().__init__(
            message, [Label(loc, text) for loc, text in labels], notes=notes, helps=helps
        )


class SetBySeveral(UserError):
    """Several ranks set one cell, or set and add to it, and nothing orders them.

    The cell ends with the value that came last. Give each source its own cell, or let all of them
    use `pld.NotifyOp.AtomicAdd`.
    """

    code = "E1714"

    def __init__(
        self, name: str, rank: int, labels: Sequence[tuple[Loc, str]], both_set: bool
    ) -> None:
        what = "set by several ranks" if both_set else "set and added to"
        super().__init__(
            f"a cell of `{name}` of rank {rank} is {what}",
            [Label(loc, text) for loc, text in labels],
            helps=["use `pld.NotifyOp.AtomicAdd`, or a cell of its own for each source"],
        )


class LineShared(UserError):
    """Two ranks store into one 64-byte line of a slice, one of them by `Set`, in no order.

    A scalar store writes back the whole line it lies in: a neighbour that a peer has stored
    meanwhile returns to its old value. Small window buffers are packed one behind the other, so
    this can happen across buffers.
    """

    code = "E1715"

    def __init__(
        self, names: tuple[str, str], rank: int, labels: Sequence[tuple[Loc, str]]
    ) -> None:
        where = f"`{names[0]}`" if names[0] == names[1] else f"`{names[0]}` and `{names[1]}`"
        super().__init__(
            f"cells of {where} of rank {rank} share a 64-byte line",
            [Label(loc, text) for loc, text in labels],
            helps=["pad cells to 64 bytes, or use `pld.NotifyOp.AtomicAdd`"],
        )


class NotifiedTwice(UserError):
    """A kernel for cube and vector cores notifies outside a vector region.

    Both kinds of cores run the statement: the peer is notified twice, or before the vector core
    has stored the data. Put it into `for lane in pl.split_aiv(...)`, or into a kernel of its own.
    """

    code = "E1716"

    def __init__(self, loc: Loc, kernel: str, product: Loc) -> None:
        super().__init__(
            f"`{kernel}` notifies on its cube and its vector core",
            [Label(loc, "runs on both"), Label(product, "runs on the cube core")],
            helps=["notify in a kernel of its own that takes what this one stores"],
        )


class BadSeed(UserError):
    """`--replay` names no schedule.

    A finding of `tilelet check` on a program of several ranks ends with the seed of the schedule
    that has it: `covered:3`, `random:4` or `bounded:5`.
    """

    code = "E1717"

    def __init__(self, seed: str) -> None:
        super().__init__(
            f"`{seed}` is no seed of a schedule",
            helps=["take the seed that a finding of `tilelet check` ends with, such as `random:4`"],
        )


class RanksOnly(UserError):
    """A command that works on the tasks of one chip is given a program of several ranks.

    `tilelet run` executes such programs and `tilelet check` explores their schedules. Modelled
    times, advice, tuning and exports are of one chip so far.
    """

    code = "E1712"

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "this command takes programs of one chip",
            [Label(loc, "this function dispatches to ranks")],
            helps=["`tilelet run` executes it; `tilelet check` explores its schedules"],
        )


class NotInRanks(UserError):
    """A name that `pld` does not offer here.

    The language has transfers that wait until they are done (`put`, `get`), remote loads and
    stores, signals and collectives; transfers in the background belong to the level below it.
    """

    code = "E1713"

    def __init__(self, loc: Loc, name: str) -> None:
        super().__init__(
            f"`{name}` is not supported",
            [Label(loc, "below the language")],
            helps=["use `pld.tensor.put` or `pld.tensor.get`, which wait until they are done"],
        )
