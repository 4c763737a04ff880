"""The checksum of the files that tasks exchange."""

import zlib

from jobs.replay.stages.shuffle_files import LaneSum
from tests.support.fuzzing import chances

ROW = 8 * 509
BLOCK = 4_096


def plain_sum(data: bytes) -> int:
    """Compute the checksum number by number."""
    end = len(data) - len(data) % ROW
    sums = [0] * 509
    for place in range(0, end, 8):
        lane = place % ROW // 8
        sums[lane] = (sums[lane] + int.from_bytes(data[place : place + 8], "little")) % 2**64
    return zlib.crc32(data[end:], zlib.crc32(b"".join(lane.to_bytes(8, "little") for lane in sums)))


def test_the_checksum_is_that_of_the_definition_however_the_bytes_are_cut() -> None:
    for random in chances(40):
        data = random.randbytes(random.choice((0, 7, ROW - 1, ROW, ROW + 8, random.randrange(5 * ROW))))
        whole = LaneSum()
        start = 0
        while start < len(data):
            end = min(len(data), start + random.choice((1, 4, 8, 100, ROW, 3 * ROW)))
            whole.add(memoryview(data)[start:end])
            start = end
        assert whole.size == len(data)
        assert whole.value() == LaneSum.of(data) == plain_sum(data)


def test_a_changed_bit_a_lost_block_and_exchanged_blocks_change_the_checksum() -> None:
    """A stale or misplaced block of a disk has 4,096 bytes. Blocks that are equal may change places."""
    for random in chances(100):
        blocks = [random.randbytes(BLOCK) for _ in range(random.randint(2, 12))]
        data, first, second = b"".join(blocks), *random.sample(range(len(blocks)), 2)
        bit = random.randrange(8 * len(data))
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        lost = [*blocks]
        lost[first] = bytes(BLOCK)
        stale = [*blocks]
        stale[first] = blocks[second]
        exchanged = [*stale]
        exchanged[second] = blocks[first]
        sums = {LaneSum.of(one) for one in (data, bytes(flipped), *map(b"".join, (lost, stale, exchanged)))}
        assert len(sums) == 5
