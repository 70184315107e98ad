"""The disk of the proofs: what was synced is there, and of the rest anything may be missing."""

from random import Random

import pytest

from tests.store.proofs.disk import SECTOR, Cut, Disk, Gone, Made, Step, Sync, Write, files_after

OLD, NEW = b"o" * 3 * SECTOR, b"n" * 3 * SECTOR


def followed(*steps: Step) -> Disk:
    disk = Disk()
    for step in steps:
        disk.follow(step)
    return disk


def found(disk: Disk, many: int = 300) -> set[bytes | None]:
    """What may be found under the name `f`."""
    return {disk.chosen(Random(seed)).get("f") for seed in range(many)}


@pytest.mark.parametrize(
    ("steps", "whole", "synced"),
    [
        ([Made(1, "f")], {"f": b""}, {}),
        ([Made(1, "f", OLD, solid=True)], {"f": OLD}, {"f": OLD}),
        ([Made(1, "f"), Write(1, 0, NEW)], {"f": NEW}, {}),
        ([Made(1, "f"), Write(1, 0, NEW), Sync(1)], {"f": NEW}, {}),
        ([Made(1, "f"), Write(1, 0, NEW), Sync(1, folder=True)], {"f": NEW}, {"f": NEW}),
        ([Made(1, "f", OLD, solid=True), Write(1, 0, NEW)], {"f": NEW}, {"f": OLD}),
        ([Made(1, "f", OLD, solid=True), Write(1, 0, NEW), Sync(1), Write(1, 0, OLD)], {"f": OLD}, {"f": NEW}),
        ([Made(1, "f", b"abc", solid=True), Write(1, 5, b"d")], {"f": b"abc\0\0d"}, {"f": b"abc"}),
        ([Made(1, "f", b"abc", solid=True), Cut(1, 1)], {"f": b"a"}, {"f": b"abc"}),
        ([Made(1, "f", b"abc", solid=True), Cut(1, 1), Sync(1)], {"f": b"a"}, {"f": b"a"}),
        ([Made(1, "f", OLD, solid=True), Gone("f")], {}, {"f": OLD}),
        ([Made(1, "f", OLD, solid=True), Gone("f", folder=True)], {}, {}),
        ([Made(1, "f", OLD, solid=True), Gone("f"), Made(2, "f")], {"f": b""}, {"f": OLD}),
        ([Made(1, "f", OLD, solid=True), Gone("f"), Made(2, "f"), Sync(2, folder=True)], {"f": b""}, {"f": b""}),
    ],
)
def test_a_kill_leaves_all_and_a_power_cut_what_was_synced(
    steps: list[Step], whole: dict[str, bytes], synced: dict[str, bytes]
) -> None:
    disk = followed(*steps)
    assert disk.whole() == files_after(steps) == whole
    assert disk.synced() == synced


def test_an_unsynced_write_is_there_lost_or_torn_at_a_sector() -> None:
    images = found(followed(Made(1, "f", OLD, solid=True), Write(1, 0, NEW)))
    assert {OLD, NEW} < images
    for image in images:
        assert image is not None
        sectors = [image[at : at + SECTOR] for at in range(0, len(image), SECTOR)]
        assert set(sectors) <= {OLD[:SECTOR], NEW[:SECTOR]}
    assert len(images) == 2**3


def test_a_later_write_may_arrive_without_an_earlier_one() -> None:
    steps = (Made(1, "f", b"..", solid=True), Write(1, 0, b"1"), Write(1, 1, b"2"))
    assert found(followed(*steps)) == {b"..", b"1.", b".2", b"12"}


def test_what_was_synced_stays_whatever_comes_after() -> None:
    steps = (Made(1, "f", OLD, solid=True), Write(1, 0, NEW[:SECTOR]), Sync(1), Write(1, SECTOR, NEW[:SECTOR]))
    assert {image[:SECTOR] for image in found(followed(*steps)) if image} == {NEW[:SECTOR]}


def test_a_file_may_have_grown_without_its_content() -> None:
    images = found(followed(Made(1, "f", b"", solid=True), Write(1, 0, NEW)), many=600)
    assert {b"", NEW, bytes(len(NEW))} < images


def test_a_name_may_be_old_or_new() -> None:
    assert found(followed(Made(1, "f", OLD, solid=True), Gone("f"), Made(2, "f"))) == {OLD, None, b""}
