"""Programs of several ranks (E17xx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Label, Loc, UserError
from tilelet.diag.text import plural


class NotDistributed(UserError):
    """A remote op is given a tensor that no peer can address."""

    code = "E1701"

    def __init__(self, loc: Loc, op: str, param: str, found: str) -> None:
        super().__init__(
            f"`{op}` needs a `pld.DistributedTensor` for `{param}`",
            [Label(loc, f"this is {found}")],
            helps=["pass a view made by `pld.window`, and declare it `pld.DistributedTensor`"],
        )


class BadSignal(UserError):
    """A signal is not a cell of INT32 in a window."""

    code = "E1702"

    def __init__(self, loc: Loc, op: str, problem: str) -> None:
        super().__init__(
            f"`{op}`: {problem}",
            [Label(loc, "not a signal cell")],
            helps=["a signal is a `pld.DistributedTensor` of pl.INT32, and one offset per axis"],
        )


class TransferMismatch(UserError):
    """The two sides of a transfer between ranks do not agree."""

    code = "E1703"

    def __init__(self, loc: Loc, op: str, problem: str, advice: str = "") -> None:
        super().__init__(
            f"`{op}`: {problem}",
            [Label(loc, "this does not agree")],
            helps=[advice] if advice else [],
        )


class WrongPlace(UserError):
    """A name of `pld` stands where it means nothing."""

    code = "E1704"

    def __init__(self, loc: Loc, op: str, where: str, belongs: str) -> None:
        super().__init__(
            f"`{op}` in {where}",
            [Label(loc, f"it belongs in {belongs}")],
        )


class BadDispatch(UserError):
    """A host function calls something that it cannot dispatch."""

    code = "E1705"

    def __init__(self, loc: Loc, problem: str, advice: str) -> None:
        super().__init__(problem, [Label(loc, "cannot be dispatched")], helps=[advice])


class BadDevice(UserError):
    """`device=` names no rank of the world."""

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
    """A window buffer cannot be allocated or viewed like this."""

    code = "E1707"

    def __init__(self, loc: Loc, problem: str, advice: str = "", made: Loc | None = None) -> None:
        labels = [Label(loc, "here")]
        if made is not None:
            labels.append(Label(made, "allocated here"))
        super().__init__(problem, labels, helps=[advice] if advice else [])


class NoSuchPeer(UserError):
    """A remote op names a peer outside its communication domain."""

    code = "E1708"

    def __init__(self, loc: Loc, op: str, peer: int, ranks: Sequence[int], name: str) -> None:
        listed = ", ".join(map(str, ranks))
        super().__init__(
            f"`{op}`: peer {peer} of a domain of {len(ranks)}",
            [Label(loc, f"`{name}` is shared by ranks {listed}")],
        )


class BadCollective(UserError):
    """A collective is called in a way that cannot work."""

    code = "E1709"

    def __init__(self, loc: Loc, op: str, problem: str, advice: str = "") -> None:
        super().__init__(
            f"`{op}`: {problem}", [Label(loc, "here")], helps=[advice] if advice else []
        )


class RanksDeadlock(UserError):
    """No rank can go on."""

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
    """Two ranks touch the same bytes of a window, and nothing orders them."""

    code = "E1711"

    def __init__(
        self, message: str, labels: Sequence[tuple[Loc, str]], notes: Sequence[str] = (),
        helps: Sequence[str] = (),
    ) -> None:  # fmt: skip
        super().__init__(
            message, [Label(loc, text) for loc, text in labels], notes=notes, helps=helps
        )


class SetBySeveral(UserError):
    """Several ranks set one cell, or set and add to it, and nothing orders them."""

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
    """Two ranks store into one 64-byte line of a slice, one of them by `Set`, in no order."""

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
    """A kernel for cube and vector cores notifies outside a vector region."""

    code = "E1716"

    def __init__(self, loc: Loc, kernel: str, product: Loc) -> None:
        super().__init__(
            f"`{kernel}` notifies on its cube and its vector core",
            [Label(loc, "runs on both"), Label(product, "runs on the cube core")],
            helps=["notify in a kernel of its own that takes what this one stores"],
        )


class BadSeed(UserError):
    """`--replay` names no schedule."""

    code = "E1717"

    def __init__(self, seed: str) -> None:
        super().__init__(
            f"`{seed}` is no seed of a schedule",
            helps=["take the seed that a finding of `tilelet check` ends with, such as `random:4`"],
        )


class RanksOnly(UserError):
    """A command that works on the tasks of one chip is given a program of several ranks."""

    code = "E1712"

    def __init__(self, loc: Loc) -> None:
        super().__init__(
            "this command takes programs of one chip",
            [Label(loc, "this function dispatches to ranks")],
            helps=["`tilelet run`, `check`, `tasks` and `profile` take several ranks"],
        )


class NotInRanks(UserError):
    """A name that `pld` does not offer here."""

    code = "E1713"

    def __init__(self, loc: Loc, name: str) -> None:
        super().__init__(
            f"`{name}` is not supported",
            [Label(loc, "below the language")],
            helps=["use `pld.tensor.put` or `pld.tensor.get`, which wait until they are done"],
        )


class NoMpi(UserError):
    """`--ranks mpi` is used, and the package mpi4py is not installed."""

    code = "E1718"

    def __init__(self) -> None:
        super().__init__(
            "`--ranks mpi` needs the package mpi4py", [],
            helps=["`pip install 'tilelet[mpi]'` installs it together with an MPI"],
        )  # fmt: skip


class WrongWorld(UserError):
    """The program has another number of ranks than MPI has processes."""

    code = "E1719"

    def __init__(self, loc: Loc, ranks: int, processes: int) -> None:
        super().__init__(
            f"the program has {plural(ranks, 'rank')}, and MPI has"
            f" {plural(processes, 'process', 'processes')}",
            [Label(loc)],
            helps=[f"`mpiexec -n {ranks} tilelet run ... --ranks mpi`"],
        )


class RanksDiffer(UserError):
    """The processes of MPI run different programs."""

    code = "E1720"

    def __init__(self, loc: Loc, name: str, others: Sequence[int]) -> None:
        which = ", ".join(map(str, others[:8])) + (", ..." if len(others) > 8 else "")
        ranks = f"{'rank' if len(others) == 1 else 'ranks'} {which}"
        super().__init__(
            f"`{name}` of rank 0 is another program than that of {ranks}",
            [Label(loc, "the program of this process")],
            helps=["start the same script with the same arguments everywhere"],
        )


class NoLinks(UserError):
    """The time of several ranks is asked for, and the machine file has no table `links`."""

    code = "E1721"

    def __init__(self, machine: str) -> None:
        super().__init__(
            f"`{machine}` has no links between ranks",
            [],
            helps=["add a table `[links]` to the machine file; that of a2a3 shows its fields"],
        )


class BadDeferredWait(UserError):
    """`defer_wait` shares its kernel with other work, or has too many conditions."""

    code = "E1722"

    def __init__(self, loc: Loc, problem: str) -> None:
        super().__init__(
            f"`pld.system.defer_wait`: {problem}",
            [Label(loc)],
            helps=["give it a scope of its own, and let the work after it take `deps=[tid]`"],
        )
