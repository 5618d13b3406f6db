"""The quickstart's decoder in PyTorch, written to be fast there: the peer of scripts/bench_peers.py.

The same architecture and parameter names as src/nn, so that a checkpoint of ours loads into it. Three ways to
write the squared-score read and two each for the convolution and the rotation; bench_peers.py takes the fastest.
"""

import json
import math
import struct

import torch
import torch.nn.functional as F
from torch import nn

EPS = 1e-6

# How a variant is written: read, convolution, rotation.
EAGER = {
    "masked": ("masked", "conv1d", "pairs"),
    "tiles": ("tiles", "taps", "complex"),
    "recompute": ("recompute", "taps", "complex"),
}
COMPILED = {
    "masked": ("masked", "taps", "pairs"),
    "tiles": ("tiles", "taps", "pairs"),
    "recompute": ("recompute", "taps", "pairs"),
}


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, EPS)


class Conv(nn.Module):
    """Depthwise causal convolution along time, then SiLU. x: [B, T, C]; weight: [C, taps]."""

    def __init__(self, channels, taps, style):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels, taps).uniform_(-0.5, 0.5))
        self.style = style

    def forward(self, x):
        time, taps = x.shape[1], self.weight.shape[1]
        if self.style == "conv1d":
            padded = F.pad(x.transpose(1, 2), (taps - 1, 0))
            return F.silu(F.conv1d(padded, self.weight.unsqueeze(1), groups=x.shape[2]).transpose(1, 2))
        padded, taps_first = F.pad(x, (0, 0, taps - 1, 0)), self.weight.t()
        y = padded[:, :time] * taps_first[0]
        for j in range(1, taps):
            y = torch.addcmul(y, padded[:, j:j + time], taps_first[j])
        return F.silu(y)


class Rope(nn.Module):
    """Interleaved pairs; x: [B, T, H, d]."""

    def __init__(self, time, width, base, style):
        super().__init__()
        angles = torch.arange(time).double()[:, None] * base ** (-torch.arange(0, width, 2).double() / width)
        self.register_buffer("cos", angles.cos().float()[:, None], persistent=False)
        self.register_buffer("sin", angles.sin().float()[:, None], persistent=False)
        unit = torch.polar(torch.ones_like(angles), angles).to(torch.complex64)[:, None]
        self.register_buffer("unit", unit, persistent=False)
        self.style = style

    def forward(self, x):
        if self.style == "complex":
            pairs = torch.view_as_complex(x.contiguous().unflatten(-1, (-1, 2)))
            return torch.view_as_real(pairs * self.unit).flatten(-2)
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack((a * self.cos - b * self.sin, a * self.sin + b * self.cos), -1).flatten(-2)


def tiles_of(time):
    size = max(time // 4, 1)
    return [(begin, min(begin + size, time)) for begin in range(0, time, size)]


# The psd read with M groups: o_t = sum_s A[t,s] v_s / sum_s A[t,s], A[t,s] = sum_i (q_ti . k_si)^2, s <= t.
# q (already scaled), k, v: [B, H, T, d]; mask: [T, T], ones on and below the diagonal.

def read_masked(q, k, v, groups, mask):
    if groups == 1:
        a = (q @ k.transpose(-1, -2)).square()
    else:
        q, k = (x.unflatten(-1, (groups, -1)).transpose(2, 3) for x in (q, k))
        a = (q @ k.transpose(-1, -2)).square().sum(2)
    a = a * mask
    return (a @ v) / a.sum(-1, keepdim=True)


def read_tiles(q, k, v, groups, mask):
    qs, ks = ([p.contiguous() for p in x.unflatten(-1, (groups, -1)).unbind(-2)] for x in (q, k))
    out = []
    for begin, end in tiles_of(q.shape[2]):
        a = None
        for qi, ki in zip(qs, ks):
            r = qi[:, :, begin:end] @ ki[:, :, :end].transpose(-1, -2)
            a = r * r if a is None else torch.addcmul(a, r, r)
        a = a * mask[begin:end, :end]
        out.append((a @ v[:, :, :end]) / a.sum(-1, keepdim=True))
    return torch.cat(out, 2)


class Recompute(torch.autograd.Function):
    """read_tiles with the backward by hand, which keeps no T x T matrix and computes the scores again."""

    @staticmethod
    def split(x, groups):  # [B, H, T, d] -> [B H, T, groups, d / groups]
        return x.view(-1, x.shape[2], groups, x.shape[3] // groups)

    @staticmethod
    def forward(ctx, q, k, v, groups, mask):
        qs, ks, vf = Recompute.split(q, groups), Recompute.split(k, groups), v.flatten(0, 1)
        o, mass = torch.empty_like(vf), vf.new_empty(*vf.shape[:2], 1)
        for begin, end in tiles_of(q.shape[2]):
            a = None
            for i in range(groups):
                r = torch.bmm(qs[:, begin:end, i], ks[:, :end, i].transpose(1, 2))
                a = r.square_() if a is None else a.addcmul_(r, r)
            a.mul_(mask[begin:end, :end])
            mass[:, begin:end] = a.sum(-1, keepdim=True)
            o[:, begin:end] = torch.bmm(a, vf[:, :end]).div_(mass[:, begin:end])
        ctx.save_for_backward(q, k, v, o, mass, mask)
        ctx.groups = groups
        return o.view_as(v)

    @staticmethod
    def backward(ctx, d_o):
        q, k, v, o, mass, mask = ctx.saved_tensors
        qs, ks, vf = Recompute.split(q, ctx.groups), Recompute.split(k, ctx.groups), v.flatten(0, 1)
        g = d_o.flatten(0, 1) / mass
        w = (o * g).sum(-1, keepdim=True)
        dq, dk, dv = torch.empty_like(qs), torch.zeros_like(ks), torch.zeros_like(vf)
        for begin, end in tiles_of(q.shape[2]):
            gi, allowed, a = g[:, begin:end], mask[begin:end, :end], None
            da = torch.bmm(gi, vf[:, :end].transpose(1, 2)).sub_(w[:, begin:end]).mul_(2).mul_(allowed)
            for i in range(ctx.groups):
                r = torch.bmm(qs[:, begin:end, i], ks[:, :end, i].transpose(1, 2))
                a = r * r if a is None else a.addcmul_(r, r)
                r.mul_(da)
                dq[:, begin:end, i] = torch.bmm(r, ks[:, :end, i])
                dk[:, :end, i] += torch.bmm(r.transpose(1, 2), qs[:, begin:end, i])
            dv[:, :end] += torch.bmm(a.mul_(allowed).transpose(1, 2), gi)
        return dq.view_as(q), dk.view_as(k), dv.view_as(v), None, None


READS = {"masked": read_masked, "tiles": read_tiles,
         "recompute": lambda q, k, v, groups, mask:
             Recompute.apply(q.contiguous(), k.contiguous(), v.contiguous(), groups, mask)}


class Mixer(nn.Module):
    def __init__(self, model, mixer, time, style):
        super().__init__()
        read, conv, rope = style
        self.heads, self.kv_heads, self.width = model["heads"], model["kv_heads"], model["head_dim"]
        self.softmax, self.groups, self.read = mixer["read"] == "softmax", mixer.get("groups", 1), read
        if not self.softmax and (mixer["map"] != "psd" or mixer["read"] != "normalised"):
            raise SystemExit(f"peer_model.py: error: no peer for map {mixer['map']}, read {mixer['read']}; "
                             "expected psd with a normalised read, or softmax")
        fused = (self.heads + 2 * self.kv_heads) * self.width
        self.qkv = nn.Linear(model["hidden"], fused, bias=False)
        self.out = nn.Linear(self.heads * self.width, model["hidden"], bias=False)
        self.conv = Conv(fused, mixer["conv"], conv) if mixer["conv"] else None
        self.l2 = mixer["qk_norm"] == "l2"
        rms = mixer["qk_norm"] == "rms"
        self.q_norm, self.k_norm = (Norm(self.width) if rms else None for _ in range(2))
        self.rope = None if mixer["rope"] == "none" else Rope(time, self.width, mixer["rope"]["base"], rope)
        self.head_norm = None if self.softmax else Norm(self.width)
        self.register_buffer("mask", torch.ones(time, time).tril(), persistent=False)

    def forward(self, x):
        batch, time, _ = x.shape
        y = self.qkv(x)
        if self.conv is not None:
            y = self.conv(y)
        y = y.view(batch, time, -1, self.width)
        q, k, v = y.split((self.heads, self.kv_heads, self.kv_heads), 2)
        if self.q_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.l2:
            q, k = (t * torch.rsqrt(t.square().sum(-1, keepdim=True) + EPS) for t in (q, k))
        if self.rope is not None:
            q, k = self.rope(q), self.rope(k)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        if self.heads != self.kv_heads:
            k, v = (t.repeat_interleave(self.heads // self.kv_heads, 1) for t in (k, v))
        if self.softmax:
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        else:
            sigma = 1 / math.sqrt(self.width / self.groups)
            o = self.head_norm(READS[self.read](q * sigma, k, v, self.groups, self.mask).transpose(1, 2))
        return self.out(o.reshape(batch, time, -1))


class Mlp(nn.Module):
    def __init__(self, hidden, width):
        super().__init__()
        self.gate_up = nn.Linear(hidden, 2 * width, bias=False)
        self.down = nn.Linear(width, hidden, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, model, mixer, time, style):
        super().__init__()
        self.mixer_norm, self.mixer = Norm(model["hidden"]), Mixer(model, mixer, time, style)
        self.mlp_norm, self.mlp = Norm(model["hidden"]), Mlp(model["hidden"], model["mlp"])

    def forward(self, x):
        x = x + self.mixer(self.mixer_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Decoder(nn.Module):
    """config: a resolved config.yaml of ours, as a dictionary."""

    def __init__(self, config, style):
        super().__init__()
        model, time = config["model"], config["train"]["sequence"]
        mixers = model["mixer"] if isinstance(model["mixer"], list) else [model["mixer"]] * model["layers"]
        self.embedding = nn.Embedding(model["vocab"], model["hidden"])
        self.blocks = nn.ModuleList(Block(model, mixer, time, style) for mixer in mixers)
        self.norm = Norm(model["hidden"])
        self.head = None if model["tie_embeddings"] else nn.Linear(model["hidden"], model["vocab"], bias=False)
        for p in self.matrices():
            nn.init.normal_(p, 0, 0.02)

    def matrices(self):
        return [p for name, p in self.named_parameters() if p.dim() == 2 and ".conv." not in name]

    def forward(self, inputs, targets):
        x = self.embedding(inputs)
        for block in self.blocks:
            x = block(x)
        table = self.embedding.weight if self.head is None else self.head.weight
        return F.cross_entropy(F.linear(self.norm(x), table).flatten(0, 1), targets.flatten())


def read_safetensors(path):
    """The fp32 tensors of a .safetensors file by name."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = bytearray(file.read())
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        flat = torch.frombuffer(data, dtype=torch.float32, count=(end - begin) // 4, offset=begin)
        tensors[name] = flat.view(entry["shape"])
    return tensors
