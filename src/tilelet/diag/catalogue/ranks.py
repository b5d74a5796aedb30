"""Programs of several ranks (E17xx)."""

from __future__ import annotations

from collections.abc import Sequence

from tilelet.diag.core import Label, Loc, UserError
from tilelet.diag.text import plural


class NotDistributed(UserError, code="E1701"):
    """A remote op is given a tensor that no peer can address."""

    def __init__(self, loc: Loc, op: str, param: str, found: str) -> None:
        super().__init__(
            f"`{op}` needs a `pld.DistributedTensor` for `{param}`",
            [Label(loc, f"this is {found}")],
            helps=["pass a view made by `pld.window`, and declare it `pld.DistributedTensor`"],
        )


class BadSignal(UserError, code="E1702"):
    """A signal is not a cell of INT32 in a window."""

    def __init__(self, loc: Loc, op: str, problem: str) -> None:
        super().__init__(
            f"`{op}`: {problem}",
            [Label(loc, "not a signal cell")],
            helps=["a signal is a `pld.DistributedTensor` of pl.INT32, and one offset per axis"],
        )


class TransferMismatch(UserError, code="E1703"):
    """The two sides of a transfer between ranks do not agree."""

    def __init__(self, loc: Loc, op: str, problem: str, advice: str = "") -> None:
        super().__init__(
            f"`{op}`: {problem}",
            [Label(loc, "this does not agree")],
            helps=[advice] if advice else [],
        )


class WrongPlace(UserError, code="E1704"):
    """A name of `pld` stands where it means nothing."""

    def __init__(self, loc: Loc, op: str, where: str, belongs: str) -> None:
        super().__init__(
            f"`{op}` in {where}",
            [Label(loc, f"it belongs in {belongs}")],
        )


class BadDispatch(UserError, code="E1705"):
    """A host function calls something that it cannot dispatch."""

    def __init__(self, loc: Loc, problem: str, advice: str) -> None:
        super().__init__(problem, [Label(loc, "cannot be dispatched")], helps=[advice])


class BadDevice(UserError, code="E1706"):
    """`device=` names no rank of the world."""

    def __init__(
        self, loc: Loc, found: object, world: int | None = None, ranks_of: Loc | None = None
    ) -> None:
        if world is None:
            message, what = "`device=` of a dispatch with windows is computed", f"`{found}`"
        else:
            message, what = f"rank {found} of a world of {world}", "no such rank"
        labels = [Label(loc, what)]
        if ranks_of is not None:
            labels.append(Label(ranks_of, "not a range of known ranks"))
        super().__init__(
            message,
            [
                Label(loc, what),
                *([Label(ranks_of, "not a range of known ranks")] if ranks_of else []),
            ],
            helps=["give a constant rank, or the variable of `for r in pl.range(pld.world_size())`"]
            if world is None
            else [f"ranks are 0 to {world - 1}: see `device_ids=` of the `DistributedConfig`"],
        )


class BadWindowBuffer(UserError, code="E1707"):
    """A window buffer cannot be allocated or viewed like this."""

    def __init__(self, loc: Loc, problem: str, advice: str = "", made: Loc | None = None) -> None:
        labels = [Label(loc, "here")]
        if made is not None:
            labels.append(Label(made, "allocated here"))
        super().__init__(problem, labels, helps=[advice] if advice else [])


class NoSuchPeer(UserError, code="E1708"):
    """A remote op names a peer outside its communication domain."""

    def __init__(self, loc: Loc, op: str, peer: int, ranks: Sequence[int], name: str) -> None:
        listed = ", ".join(map(str, ranks))
        super().__init__(
            f"`{op}`: peer {peer} of a domain of {len(ranks)}",
            [Label(loc, f"`{name}` is shared by ranks {listed}")],
        )


class BadCollective(UserError, code="E1709"):
    """A collective is called in a way that cannot work."""

    def __init__(
        self, loc: Loc, op: str, problem: str, advice: str = "", other: Loc | None = None
    ) -> None:
        labels = [Label(loc, "here"), *([] if other is None else [Label(other, "and here")])]
        super().__init__(f"`{op}`: {problem}", labels, helps=[advice] if advice else [])


class RanksDeadlock(UserError, code="E1710"):
    """No rank can go on."""

    def __init__(
        self, labels: Sequence[tuple[Loc, str]], causes: Sequence[str], helps: Sequence[str] = ()
    ) -> None:
        super().__init__(
            "deadlock: no rank can go on",
            [Label(loc, text) for loc, text in labels],
            notes=causes,
            helps=helps,
        )


class RanksRace(UserError, code="E1711"):
    """Two ranks touch the same bytes of a window, and nothing orders them."""

    def __init__(
        self, message: str, labels: Sequence[tuple[Loc, str]], notes: Sequence[str] = (),
        helps: Sequence[str] = (),
    ) -> None:  # fmt: skip
        super().__init__(
            message, [Label(loc, text) for loc, text in labels], notes=notes, helps=helps
        )


class SetBySeveral(UserError, code="E1714"):
    """Several ranks set one cell, or set and add to it, and nothing orders them."""

    def __init__(
        self, name: str, rank: int, labels: Sequence[tuple[Loc, str]], both_set: bool
    ) -> None:
        what = "set by several ranks" if both_set else "set and added to"
        super().__init__(
            f"a cell of `{name}` of rank {rank} is {what}",
            [Label(loc, text) for loc, text in labels],
            helps=["use `pld.NotifyOp.AtomicAdd`, or a cell of its own for each source"],
        )


class LineShared(UserError, code="E1715"):
    """Two ranks store into one 64-byte line of a slice, one of them by `Set`, in no order."""

    def __init__(
        self, names: tuple[str, str], rank: int, labels: Sequence[tuple[Loc, str]]
    ) -> None:
        where = f"`{names[0]}`" if names[0] == names[1] else f"`{names[0]}` and `{names[1]}`"
        super().__init__(
            f"cells of {where} of rank {rank} share a 64-byte line",
            [Label(loc, text) for loc, text in labels],
            helps=["pad cells to 64 bytes, or use `pld.NotifyOp.AtomicAdd`"],
        )


class NotifiedTwice(UserError, code="E1716"):
    """A kernel for cube and vector cores notifies outside a vector region."""

    def __init__(self, loc: Loc, kernel: str, product: Loc) -> None:
        super().__init__(
            f"`{kernel}` notifies on its cube and its vector core",
            [Label(loc, "runs on both"), Label(product, "runs on the cube core")],
            helps=["notify in a kernel of its own that takes what this one stores"],
        )


class BadSeed(UserError, code="E1717"):
    """`--replay` names no schedule."""

    def __init__(self, seed: str) -> None:
        super().__init__(
            f"`{seed}` is no seed of a schedule",
            helps=["take the seed that a finding of `tilelet check` ends with, such as `random:4`"],
        )


class RanksOnly(UserError, code="E1712"):
    """A command that works on the tasks of one chip is given a program of several ranks."""

    def __init__(self, loc: Loc, alone: Sequence[str] = ()) -> None:
        helps = ["`tilelet run`, `check`, `tasks` and `profile` take several ranks"]
        if alone:
            names = ", ".join(f"`{name}`" for name in alone)
            helps.append(f"{names}: takes no window, so a script may call it for one rank alone")
        super().__init__(
            "this command takes programs of one chip",
            [Label(loc, "this function dispatches to ranks")],
            helps=helps,
        )


class NotInRanks(UserError, code="E1713"):
    """A name that `pld` does not offer here."""

    def __init__(self, loc: Loc, name: str) -> None:
        self.name = name
        instead = "`pld.tensor.put` or `pld.tensor.get`, which wait until they are done"
        if name.endswith(".test"):
            instead = "`pld.system.wait`, or `pld.system.defer_wait`, which holds no core"
        super().__init__(
            f"`{name}` is not supported",
            [Label(loc, "below the language")],
            helps=[f"use {instead}"],
        )


class NoMpi(UserError, code="E1718"):
    """`--ranks mpi` is used, and the package mpi4py or an MPI library is missing."""

    def __init__(self, missing: str = "the package mpi4py") -> None:
        super().__init__(
            f"`--ranks mpi` needs {missing}", [],
            helps=["`pip install 'tilelet[mpi]'` installs mpi4py together with an MPI"],
        )  # fmt: skip


class WrongWorld(UserError, code="E1719"):
    """The program's number of ranks differs from MPI's number of processes."""

    def __init__(self, loc: Loc, ranks: int, processes: int) -> None:
        super().__init__(
            f"the program has {plural(ranks, 'rank')}, and MPI has"
            f" {plural(processes, 'process', 'processes')}",
            [Label(loc)],
            helps=[f"`mpiexec -n {ranks} tilelet run ... --ranks mpi`"],
        )


class RanksDiffer(UserError, code="E1720"):
    """The processes of MPI run different programs."""

    def __init__(self, loc: Loc, name: str, others: Sequence[int]) -> None:
        which = ", ".join(map(str, others[:8])) + (", ..." if len(others) > 8 else "")
        ranks = f"{'rank' if len(others) == 1 else 'ranks'} {which}"
        super().__init__(
            f"`{name}` of rank 0 is another program than that of {ranks}",
            [Label(loc, "the program of this process")],
            helps=["start the same script with the same arguments everywhere"],
        )


class NoLinks(UserError, code="E1721"):
    """The time of several ranks is asked for, and the machine file has no table `links`."""

    def __init__(self, machine: str) -> None:
        super().__init__(
            f"`{machine}` has no links between ranks",
            [],
            helps=["add a table `[links]` to the machine file; that of a2a3 shows its fields"],
        )


class BadDeferredWait(UserError, code="E1722"):
    """`defer_wait` shares its kernel with other work, or has too many conditions."""

    def __init__(self, loc: Loc, problem: str) -> None:
        super().__init__(
            f"`pld.system.defer_wait`: {problem}",
            [Label(loc)],
            helps=["give it a scope of its own, and let the work after it take `deps=[tid]`"],
        )


class BadWorld(UserError, ValueError, code="E1723"):
    """A `DistributedConfig` describes no world."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)


class BadWorker(UserError, ValueError, code="E1724"):
    """A `DistributedWorker` is asked for something that it does not have."""

    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(problem, helps=[advice] if advice else [])


class BadWorkerCall(UserError, TypeError, code="E1725"):
    """A `DistributedWorker` is called with other arguments than it takes."""

    def __init__(self, problem: str, advice: str = "") -> None:
        super().__init__(problem, helps=[advice] if advice else [])


class WorkerClosed(UserError, RuntimeError, code="E1726"):
    """A `DistributedWorker` is used after it was closed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what} called after close", helps=["use it inside its `with` block"])


class WrongShard(UserError, ValueError, code="E1727"):
    """A dispatch takes a shard that is resident on another rank."""

    def __init__(self, loc: Loc, name: str, shard: int, owner: int, rank: int) -> None:
        super().__init__(
            f"shard {shard} of `{name}` is on rank {owner}, and rank {rank} takes it",
            [Label(loc, f"dispatched to rank {rank}")],
            helps=["`worker_ids[i]` of `alloc_stacked_tensor` is the rank that takes `x[i]`"],
        )


class HostTooEarly(UserError, code="E1728"):
    """A host function reads or writes a tensor that a dispatch before it uses."""

    def __init__(self, loc: Loc, name: str, is_write: bool, dispatch: Loc) -> None:
        what = "writes" if is_write else "reads"
        super().__init__(
            f"the host function {what} `{name}` before its dispatches have run",
            [Label(loc, f"{what} it at once"), Label(dispatch, "uses it later")],
            helps=["let a task of the rank do it, or end the host function here and start another"],
        )
