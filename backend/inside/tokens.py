"""A micro batch as the model gets it in, its tokens without padding out, without making the accelerator wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class TokenCounter:
    """Counts by a hook on the outermost model, so that recomputed layers (gradient checkpointing) count once.

    Only passes with gradients in training mode count: evaluation, generation, and the reference passes of DPO and KTO
    do not. Sums stay on the accelerator; whoever takes them decides when to fetch.
    """

    def __init__(self) -> None:
        self._handle: Any = None
        self._sum: Any = None
        self._countable = True

    def attach(self, model: Any) -> None:
        """Begin to count passes through `model`; counts so far are dropped."""
        import torch

        self.detach()
        # Not traced by torch.compile: a graph must not grow a list or a sum of ours.
        hook = torch.compiler.disable(self._before_forward)
        self._handle = model.register_forward_pre_hook(hook, with_kwargs=True)

    def detach(self) -> None:
        """Stop counting."""
        if self._handle is not None:
            self._handle.remove()
        self._handle, self._sum, self._countable = None, None, True

    def take(self) -> Any:
        """A tensor [tokens, padding] since the last take, or None when nothing was countable."""
        taken = self._sum if self._countable else None
        self._sum, self._countable = None, True
        return taken

    def _before_forward(self, module: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        import torch

        if not module.training or not torch.is_grad_enabled():
            return
        with torch.no_grad():
            counted = count_tokens(arguments, named)
        if counted is None:
            self._countable = False
        else:
            self._sum = counted if self._sum is None else self._sum + counted


def count_tokens(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    """[tokens, padding] of one forward call as an int64 tensor on its device; None when the call names no tokens."""
    import torch

    inner = named.get("data")
    source = inner if isinstance(inner, Mapping) else named  # MiniCPM-V wraps its batch in `data`
    ids = source.get("input_ids", arguments[0] if arguments else None)
    if not torch.is_tensor(ids) or ids.dim() != 2:
        return None
    real = _real_positions(ids, source.get("attention_mask"), source.get("position_ids"))
    if real is None:
        return None
    tokens = real.sum()
    return torch.stack((tokens, ids.numel() - tokens))


def _real_positions(ids: Any, mask: Any, positions: Any) -> Any:
    """A boolean [batch, length]: True where a token is, False where padding is. None for a mask of unknown shape."""
    import torch

    if mask is None:
        real = torch.ones_like(ids, dtype=torch.bool)
    elif torch.is_tensor(mask) and mask.dim() == 2 and mask.shape == ids.shape:
        real = mask != 0  # neat packing writes the number of the sequence here, 1, 2, ...
    elif torch.is_tensor(mask) and mask.dim() == 4:
        # Neat packing without FlashAttention: a [batch, 1, length, length] mask; a token at least attends to itself.
        itself = mask.diagonal(dim1=-2, dim2=-1)[:, 0]
        real = itself if mask.dtype == torch.bool else itself == 0
    else:
        return None
    if torch.is_tensor(positions) and positions.dim() == 2 and positions.shape[-1] == ids.shape[-1]:
        # LLaMA-Factory's plain packing fills each block up with padding whose mask says 1 and whose position says 0.
        steps = torch.arange(1, ids.shape[-1] + 1, device=ids.device)
        length = ((positions != 0) * steps).amax(dim=-1, keepdim=True)
        real = real & (steps <= length)
    return real
