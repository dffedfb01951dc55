#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
# Copyright (c) The Verbena authors
"""Checks the model's loss and every gradient against PyTorch's.

usage: compare.py DUMP...

Each DUMP is a build of dump.c, float or double. The reference is computed in
double from the dumped parameters. Exits with 1 if any relative error is above
1e-5 (float) or 1e-10 (double), or if nothing was compared.
Needs Debian's python3-torch.
"""
import subprocess
import sys

import numpy
import torch
from torch.nn import functional as F

# layers, dim, heads, context, sequences, tied
CONFIGS = [
    (2, 64, 4, 64, 3, 0),
    (2, 64, 4, 64, 3, 1),
    (4, 128, 4, 128, 2, 1),
    (3, 30, 5, 71, 4, 0),
    (1, 7, 1, 1, 1, 1),
]
LIMITS = {"float": 1e-5, "double": 1e-10}


class Dump:
    """What one run of the program wrote."""

    def __init__(self, program, config):
        command = [program, *map(str, config)]
        output = subprocess.run(command, check=True,
                                stdout=subprocess.PIPE).stdout
        header, body = output.split(b"\n\n", 1)
        lines = [line.split() for line in header.decode().split("\n")]
        self.real = lines[0][1]
        self.loss = float(lines[1][1])
        dtype = {"float": "<f4", "double": "<f8"}[self.real]
        context, sequences = config[3], config[4]
        at = 0

        def take(kind, shape):
            nonlocal at
            count = int(numpy.prod(shape))
            array = numpy.frombuffer(body, kind, count, at).reshape(shape)
            at += array.nbytes
            return array

        self.tokens = take("u1", (sequences, context))
        self.targets = take("u1", (sequences, context))
        self.params, self.grads = {}, {}
        for line in lines[2:]:
            shape = tuple(map(int, line[2:]))
            self.params[line[1]] = take(dtype, shape)
            self.grads[line[1]] = take(dtype, shape)
        if at != len(body):
            raise ValueError(f"{len(body)} bytes, of which {at} make sense")


def attention(x, p, prefix, heads):
    sequences, context, dim = x.shape
    qkv = F.linear(x, p[prefix + "qkv.weight"], p[prefix + "qkv.bias"])
    q, k, v = (part.view(sequences, context, heads, dim // heads)
               .transpose(1, 2) for part in qkv.split(dim, dim=2))
    scores = q @ k.transpose(2, 3) / (dim // heads) ** 0.5
    future = torch.ones(context, context, dtype=torch.bool).triu(1)
    weights = scores.masked_fill(future, float("-inf")).softmax(-1)
    y = (weights @ v).transpose(1, 2).reshape(sequences, context, dim)
    return F.linear(y, p[prefix + "proj.weight"], p[prefix + "proj.bias"])


def norm(x, p, prefix):
    return F.layer_norm(x, x.shape[-1:], p[prefix + "gain"],
                        p[prefix + "bias"], 1e-5)


def reference_loss(p, config, tokens, targets):
    layers, _, heads, _, _, tied = config
    x = F.embedding(tokens, p["tok_emb.weight"]) + p["pos_emb.weight"]
    for layer in range(layers):
        at = f"layer.{layer}."
        x = x + attention(norm(x, p, at + "ln1."), p, at + "attn.", heads)
        up = F.linear(norm(x, p, at + "ln2."), p[at + "mlp.up.weight"],
                      p[at + "mlp.up.bias"])
        x = x + F.linear(F.gelu(up, approximate="tanh"),
                         p[at + "mlp.down.weight"], p[at + "mlp.down.bias"])
    head = p["tok_emb.weight" if tied else "head.weight"]
    logits = F.linear(norm(x, p, "ln_f."), head)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def relative_error(have, want):
    scale = numpy.linalg.norm(want)
    # No tensor's gradient is all zero: a comparison with zeros is a mistake.
    if scale == 0:
        return float("inf")
    return numpy.linalg.norm(have.astype("f8") - want) / scale


def compare(program, config):
    """Prints a table; returns how many rows there were and how many bad."""
    dump = Dump(program, config)
    limit = LIMITS[dump.real]
    params = {name: torch.tensor(array.astype("f8"), requires_grad=True)
              for name, array in dump.params.items()}
    loss = reference_loss(params, config, torch.tensor(dump.tokens).long(),
                          torch.tensor(dump.targets).long())
    loss.backward()
    rows = [("loss", abs(dump.loss - loss.item()) / loss.item())]
    for name, param in params.items():
        rows.append((name, relative_error(dump.grads[name],
                                          param.grad.numpy())))
    print("{}: layers {} dim {} heads {} context {} sequences {} tied {}; "
          "limit {:g}".format(dump.real, *config, limit))
    for name, error in rows:
        verdict = "" if error <= limit else "  FAILED"
        print(f"    {name:28} {error:9.2e}{verdict}")
    return len(rows), sum(not error <= limit for _, error in rows)


def main(programs):
    torch.set_num_threads(1)
    results = [compare(program, config)
               for program in programs for config in CONFIGS]
    rows = sum(result[0] for result in results)
    bad = sum(result[1] for result in results)
    print(f"{rows} compared with PyTorch {torch.__version__}, {bad} failed")
    return 0 if rows and not bad else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
