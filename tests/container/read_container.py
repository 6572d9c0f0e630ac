#!/usr/bin/env python3
"""A second reader of containers, written from docs/container-format.md alone, standard library only.

    read_container.py NAME.waste [VALUES]

prints a line for every tensor and every expert matrix: name, format, shape, SHA-256 of the decoded values as
little-endian f32, row-major; VALUES receives the values themselves, in the same order. Slow and plain; it checks
structure, not checksums.
"""
import hashlib
import json
import pathlib
import struct
import sys

BLOCK_BYTES = {"f32": 8192, "bf16": 4096, "q8": 2112, "q4": 1152, "mxfp4": 1088}
FORMAT_NUMBERS = ["f32", "bf16", "q8", "q4", "mxfp4"]
E2M1 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]


def bf16(data, at):
    return struct.unpack("<f", b"\0\0" + data[at:at + 2])[0]


def f32(data, at):
    return struct.unpack_from("<f", data, at)[0]


def nibble(block, start, r, c):
    quad = c % 32 // 4
    byte = block[start + 256 * (c // 32) + 64 * (quad % 4) + 4 * r + c % 4]
    return byte & 15 if quad < 4 else byte >> 4


def weight(form, block, r, c):
    """Value at row r, column c of a block."""
    if form == "f32":
        return f32(block, 4 * (16 * c + r))
    if form == "bf16":
        return bf16(block, 2 * (2 * (16 * (c // 2) + r) + c % 2))
    if form == "q8":
        code = struct.unpack_from("<b", block, 64 + 4 * (16 * (c // 4) + r) + c % 4)[0]
        return code * bf16(block, 2 * (16 * (c // 64) + r))
    if form == "q4":
        return (nibble(block, 128, r, c) - 8) * bf16(block, 2 * (16 * (c // 32) + r))
    scale = block[16 * (c // 32) + r]
    return E2M1[nibble(block, 64, r, c)] * 2.0 ** (scale - 127)


def matrix_bytes(form, rows, cols):
    return -(-rows // 16) * -(-cols // 128) * BLOCK_BYTES[form]


def decode_matrix(form, data, rows, cols):
    size = BLOCK_BYTES[form]
    blocks_in_a_row = -(-cols // 128)
    values = []
    for r in range(rows):
        for c in range(cols):
            at = (r // 16 * blocks_in_a_row + c // 128) * size
            values.append(weight(form, data[at:at + size], r % 16, c % 128))
    return values


def decode_tensor(tensor, data):
    form, shape = tensor["format"], tensor["shape"]
    if tensor["layout"] == "rows":
        step = 4 if form == "f32" else 2
        return [(f32 if form == "f32" else bf16)(data, at) for at in range(0, len(data), step)]
    rows, cols = shape[-2:]
    size = matrix_bytes(form, rows, cols)
    values = []
    for matrix in range(shape[0] if len(shape) == 3 else 1):
        values += decode_matrix(form, data[matrix * size:(matrix + 1) * size], rows, cols)
    return values


def report(name, form, shape, values):
    packed = b"".join(struct.pack("<f", value) for value in values)
    print(name, form, "x".join(map(str, shape)), hashlib.sha256(packed).hexdigest())
    if len(sys.argv) > 2:
        with open(sys.argv[2], "ab") as out:
            out.write(packed)


def read_bank(bank, data):
    assert len(data) == bank["bytes"], "file length"
    footer = data[-80:]
    magic, version, form, layer, experts, inputs, middle, record_bytes, table_at = struct.unpack_from(
        "<8sIIQQQQQQ", footer)
    assert magic == b"WASTEBNK" and version == 1
    assert FORMAT_NUMBERS[form] == bank["format"]
    assert (layer, experts, inputs, middle, record_bytes) == (
        bank["layer"], bank["experts"], bank["input_size"], bank["intermediate_size"], bank["record_bytes"])
    assert table_at + 32 * experts + 80 == len(data)
    form = bank["format"]
    for expert in range(experts):
        file, layout, offset, length = struct.unpack_from("<IIQQ", data, table_at + 32 * expert)
        assert file == 0 and layout == 0 and length == record_bytes and offset + length <= table_at
        for name, rows, cols in (("gate", middle, inputs), ("up", middle, inputs), ("down", inputs, middle)):
            matrix = data[offset:offset + matrix_bytes(form, rows, cols)]
            report(f"layer {layer} expert {expert} {name}", form, [rows, cols],
                   decode_matrix(form, matrix, rows, cols))
            offset += len(matrix)


def main():
    directory = pathlib.Path(sys.argv[1])
    manifest = json.loads((directory / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["format"] == "waste" and manifest["version"] == 1
    trunk = (directory / manifest["trunk"]["file"]).read_bytes()
    assert len(trunk) == manifest["trunk"]["bytes"], "length of trunk.bin"
    for tensor in manifest["trunk"]["tensors"]:
        data = trunk[tensor["offset"]:tensor["offset"] + tensor["bytes"]]
        report(tensor["name"], tensor["format"], tensor["shape"], decode_tensor(tensor, data))
    for bank in manifest["banks"]:
        read_bank(bank, (directory / bank["file"]).read_bytes())


if __name__ == "__main__":
    main()
