"""Names that a piece of text stores and needs."""

import ast

from tilelet.frontend.nameflow import NameFlow


def flow() -> NameFlow:
    def rebinds(call: ast.Call):
        if isinstance(call.func, ast.Name) and call.func.id == "write":
            yield call.args[0].id  # pyright: ignore[reportAttributeAccessIssue]

    return NameFlow(rebinds)


def body(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


def live(text: str, after: str = "") -> set[str]:
    return set(flow().live_before(body(text), frozenset(after.split())))


def test_assignment_kills_and_reads() -> None:
    assert live("a = b + c", "a d") == {"b", "c", "d"}


def test_a_name_written_before_it_is_read_is_not_needed() -> None:
    assert live("a = 1\nb = a") == set()


def test_a_loop_may_run_zero_times_so_it_kills_nothing() -> None:
    assert live("for i in r:\n    a = i", "a") == {"a", "r"}


def test_a_loop_needs_what_its_body_reads_first() -> None:
    assert live("for i in r:\n    acc = acc + x") == {"acc", "x", "r"}


def test_both_arms_of_an_if_count() -> None:
    assert live("if c:\n    a = x\nelse:\n    a = y", "a") == {"c", "x", "y"}


def test_one_armed_if_keeps_the_old_value_alive() -> None:
    assert live("if c:\n    a = x", "a") == {"c", "x", "a"}


def test_subscript_store_reads_and_stores_its_base() -> None:
    text = "out[i] = x"
    assert live(text) == {"out", "i", "x"}
    assert flow().stores(body(text)) == {"out"}


def test_bare_call_can_rebind() -> None:
    assert flow().stores(body("write(a, i, v)\nother(b)")) == {"a"}


def test_with_alias_is_stored() -> None:
    text = "with scope() as tid:\n    x = 1"
    assert flow().stores(body(text)) == {"tid", "x"}
    assert live(text, "tid x") == {"scope"}


def test_stores_keep_text_order() -> None:
    text = "b = 1\nfor i in r:\n    a = 1\n    b = 2\nc = 1"
    assert flow().stores_in_order(body(text)) == ["b", "i", "a", "c"]


def test_live_points_are_after_each_statement() -> None:
    points = flow().live_points(body("a = 1\nb = a\nc = b"), frozenset({"c"}))
    assert [set(p) for p in points] == [{"a"}, {"b"}, {"c"}]


def test_yielded_names_are_defined_after_their_loop() -> None:
    text = "for i, (a,) in r(n, init_values=(z,)):\n    b = pl.yield_(a)"
    assert live(text, "b") == {"r", "n", "z", "pl"}


def test_lists_made_on_the_way_are_not_mixed_up() -> None:
    # A freed list may leave its address to the next one.
    names = flow()
    statements = body("a = 1\nb = 2\nc = 3\nd = 4")
    assert [set(names.stores([s])) for s in statements] == [{"a"}, {"b"}, {"c"}, {"d"}]
