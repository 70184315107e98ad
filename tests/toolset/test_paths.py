"""A short form of `python -m bench paths`: no path leads out of the root, whatever swaps meanwhile."""

from bench.paths import campaign


def test_no_path_leads_out_while_another_process_swaps_folders() -> None:
    counts, escapes = campaign(20_000, 1)
    assert escapes == []
    assert counts["read done"] > 500
    assert counts["write done"] > 50
    assert counts["read refused"] > 5_000


def test_a_folder_that_compares_texts_is_caught() -> None:
    # On a busy machine the swapping process may hardly run during one campaign.
    assert any(campaign(3_000, seed, naive=True)[1] for seed in range(20))
