"""The TLA+ model holds, and finds each planted bug. H1-H6, H18, H23-H25, H30, H35, S35, S36, S41, S48, S131, S162."""

from __future__ import annotations

import pytest

from model.check import PLANTED, REACHED, REAL, Scene, check, config

QUICK = ("fold", "H5", "H35-fence")
SCENES = REAL + PLANTED + REACHED


@pytest.mark.parametrize("scene", [scene for scene in SCENES if scene.name in QUICK], ids=lambda scene: scene.name)
def test_quick_scenes(scene: Scene) -> None:
    assert check(scene).violated == scene.expected


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("scene", [scene for scene in SCENES if scene.name not in QUICK], ids=lambda scene: scene.name)
def test_every_scene(scene: Scene) -> None:
    verdict = check(scene)
    assert verdict.violated == scene.expected, verdict.output


def test_a_planted_bug_differs_from_the_protocol_by_its_rule_only() -> None:
    scene = next(planted_scene for planted_scene in PLANTED if planted_scene.name == "H5")
    real = Scene(scene.name, scene.script, scene.actors)
    changed = set(config(scene).splitlines()) ^ set(config(real).splitlines())
    assert changed == {'  Broken = {"H5"}', "  Broken = {}"}
