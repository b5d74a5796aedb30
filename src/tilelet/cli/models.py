"""`tilelet models`: the programs that ship with Tilelet."""

from __future__ import annotations


def list_models() -> str:
    """Every program and its variants, one line each."""
    from tilelet.models import registry

    lines: list[str] = []
    for name, model in registry.models().items():
        lines.append(f"{name}  {model.about}")
        width = max(map(len, model.variants))
        lines += [f"  :{name:<{width}}  {v.about}" for name, v in model.variants.items()]
    return "\n".join(lines)
