"""The decoder under arbitrary bytes: frames or ProtocolError, never anything else."""

from __future__ import annotations

import contextlib
import tracemalloc

import msgpack
import pytest
from fikit import protocol as p
from hypothesis import given
from hypothesis import strategies as st

json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(st.lists(st.binary(max_size=300), max_size=5))
def test_any_bytes(pieces: list[bytes]) -> None:
    decoder = p.Decoder(p.AnyRequest)
    with contextlib.suppress(p.ProtocolError):
        for piece in pieces:
            decoder.feed(piece)
            for identifier, body in decoder.frames():
                assert identifier >= 0
                assert isinstance(body, (*p.REQUESTS, p.InvalidBody))


@given(
    st.sampled_from([kind.__struct_config__.tag for kind in p.REQUESTS]),
    st.dictionaries(st.text(), json_like),
)
def test_any_body(tag: str, fields: dict[str, object]) -> None:
    decoder = p.Decoder(p.AnyRequest)
    decoder.feed(msgpack.packb({"id": 1, "body": {**fields, "type": tag}}))
    ((identifier, body),) = decoder.frames()
    assert identifier == 1
    assert isinstance(body, (*p.REQUESTS, p.InvalidBody))


@given(
    st.integers(1, 40),
    st.sampled_from([p.GetStatus(), p.Show(target="job-1"), p.Hello(version=1, client="x")]),
)
def test_cut_anywhere(size: int, body: p.Request) -> None:
    decoder, data = p.Decoder(p.AnyRequest), p.encode(3, body) * 3
    frames = []
    for start in range(0, len(data), size):
        decoder.feed(data[start : start + size])
        frames += decoder.frames()
    assert frames == [(3, body)] * 3


@pytest.mark.parametrize("bad", [b"\xc1", b"\x91" * 5000, b"\xc1" + b"\xff" * 20])
def test_what_is_no_frame_is_refused_with_a_reason(bad: bytes) -> None:
    decoder = p.Decoder(p.AnyRequest)
    decoder.feed(bad)
    with pytest.raises(p.ProtocolError, match=r"not a MessagePack frame: \w"):
        decoder.frames()


def test_a_key_that_is_no_text_is_refused() -> None:
    decoder = p.Decoder(p.AnyRequest)
    decoder.feed(b"\x81\xa1\x80\x00")
    with pytest.raises(p.ProtocolError, match=r"(?i)not a MessagePack frame: .*utf-8"):
        decoder.frames()


def test_nothing_is_made_of_what_is_no_request() -> None:
    """Millions of lists in one frame would be a gigabyte, and take the daemon seconds to make."""
    lists = msgpack.packb([[]] * (1 << 20)) * 15
    frame = b"\x82" + msgpack.packb("id") + b"\x01" + msgpack.packb("body") + b"\x9f" + lists
    decoder, frames = p.Decoder(p.AnyRequest), []
    tracemalloc.start()
    for start in range(0, len(frame), 1 << 18):
        decoder.feed(frame[start : start + (1 << 18)])
        frames += decoder.frames()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [(identifier, type(body)) for identifier, body in frames] == [(1, p.InvalidBody)]
    assert most < 4 * p.MAX_FRAME_BYTES


@pytest.mark.parametrize("unfinished", [b"\xdb\xff\xff\xff\xff", b"\xdd\xff\xff\xff\xff"])
def test_a_frame_without_an_end_is_refused_once_it_is_too_large(unfinished: bytes) -> None:
    decoder = p.Decoder(p.AnyRequest)
    decoder.feed(unfinished)
    for _ in range(15):
        decoder.feed(bytes(1 << 20))
        assert decoder.frames() == []
    decoder.feed(bytes(1 << 20))
    with pytest.raises(p.ProtocolError, match="exceeds the limit"):
        decoder.frames()


def test_what_fits_into_no_frame_is_the_sender_s_mistake() -> None:
    for body in (
        p.Drain(reason="\udcff"),
        p.OpenSession(name="x", memory_limit_bytes=1 << 70),
        p.Drain(reason="x" * p.MAX_FRAME_BYTES),
    ):
        with pytest.raises(p.UnsendableError, match=r"Drain|OpenSession|exceeds"):
            p.encode(1, body)


def test_portions_fit_into_frames_and_lose_nothing() -> None:
    checks = [p.Check(name=str(number), ok=True, detail="x" * 3_000_000) for number in range(8)]
    portions = list(p.portions(checks))
    assert [each for portion in portions for each in portion] == checks
    assert all(len(p.encode(1, p.Diagnosis(checks=portion))) < p.MAX_FRAME_BYTES for portion in portions)
    assert len(portions) > 1
    assert list(p.portions([])) == []
