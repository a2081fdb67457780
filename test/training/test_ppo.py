"""Training by seed, and stable-baselines3 models as agents of plain arrays."""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from crbo_ros.commands import import_sb3
from crbo_ros.errors import InvalidInput
from crbo_ros.policies.agent import Agent
from crbo_ros.registry import make_task
from crbo_ros.training import cartpole, mountaincar, pendulum, ppo

gymnasium = pytest.importorskip("gymnasium")
sb3 = pytest.importorskip("stable_baselines3")

RECIPES = (pendulum.RECIPE, cartpole.RECIPE, mountaincar.RECIPE)


def parse(module: Any, *words: Any) -> Any:
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return parser.parse_args([str(word) for word in words])


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.task)
def test_the_agent_in_the_package_says_which_recipe_made_it(recipe: Any) -> None:
    agent = make_task(recipe.task).agent
    wanted = (recipe.env, recipe.seed, recipe.stop or recipe.steps)
    assert tuple(agent.meta[k] for k in ("env", "seed", "steps")) == wanted
    assert [b.size for _, b in agent.layers[:-1]] == [64, 64]
    assert np.isfinite(agent.input_clip) == recipe.normalize


@pytest.mark.slow
def test_training_again_gives_the_agent_in_the_package(tmp_path: Path) -> None:
    agent = make_task("cartpole").agent
    if agent.meta["versions"] != {"stable-baselines3": sb3.__version__, "torch": ppo_torch_version()}:
        pytest.skip("another version of torch or stable-baselines3 may round differently")
    assert cartpole.run(parse(cartpole, "--out", tmp_path / "again.npz", "--episodes", 5)) == 0
    np.testing.assert_allclose(
        Agent.load(tmp_path / "again.npz").get_weights(), agent.get_weights(), rtol=1e-4, atol=1e-5
    )


def ppo_torch_version() -> Any:
    import torch

    return torch.__version__


def test_a_training_is_a_function_of_its_seed_and_normalises_as_vecnormalize_does(tmp_path: Path) -> None:
    thetas = []
    for seed, name in ((1, "a"), (1, "b"), (2, "c")):
        out = tmp_path / f"{name}.npz"
        assert (
            mountaincar.run(
                parse(mountaincar, "--seed", seed, "--steps", 64, "--stop", 64, "--out", out, "--episodes", 1)
            )
            == 0
        )
        thetas.append(Agent.load(out).get_weights())
    np.testing.assert_array_equal(thetas[0], thetas[1])
    assert not np.array_equal(thetas[0], thetas[2])


MODELS = {
    "PPO": ("Pendulum-v1", {"n_steps": 64}),
    "A2C": ("CartPole-v1", {}),
    "SAC": ("Pendulum-v1", {"buffer_size": 100}),
    "TD3": ("MountainCarContinuous-v0", {"buffer_size": 100}),
    "DQN": ("CartPole-v1", {"buffer_size": 100}),
}


@pytest.mark.parametrize("algorithm", MODELS)
def test_an_imported_model_acts_as_stable_baselines_does(
    algorithm: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env_id, settings = MODELS[algorithm]
    model = getattr(sb3, algorithm)("MlpPolicy", env_id, seed=0, device="cpu", **settings)
    model.save(tmp_path / "model.zip")
    out = tmp_path / "own.npz"
    assert (
        import_sb3.run(parse(import_sb3, tmp_path / "model.zip", "--env", env_id, "--out", out, "--episodes", 1)) == 0
    )
    assert "./crbo run gym" in capsys.readouterr().out
    agent, env = Agent.load(out), gymnasium.make(env_id)
    env.observation_space.seed(0)
    for _ in range(20):
        observation = np.clip(env.observation_space.sample(), -5, 5)
        np.testing.assert_allclose(
            agent(observation), np.ravel(model.predict(observation, deterministic=True)[0]), atol=1e-5
        )
    entry = yaml.safe_load((tmp_path / "own.yaml").read_text())["/**"]["ros__parameters"]
    assert np.isfinite(
        make_task(entry["task"], **entry["task_options"]).rollout(agent.get_weights(), np.random.default_rng(0)).value
    )


def test_other_activations_depths_and_normalisation_come_over(tmp_path: Path) -> None:
    import torch
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.vec_env import VecNormalize

    env = VecNormalize(make_vec_env("Pendulum-v1", seed=0), clip_obs=1.0)
    policy = {"activation_fn": torch.nn.ELU, "net_arch": [16, 12, 8]}
    model = sb3.PPO("MlpPolicy", env, n_steps=64, seed=0, device="cpu", policy_kwargs=policy).learn(64)
    model.save(tmp_path / "model.zip")
    env.save(str(tmp_path / "norm.pkl"))
    words = ("--env", "Pendulum-v1", "--vecnormalize", tmp_path / "norm.pkl", "--episodes", 0)
    assert import_sb3.run(parse(import_sb3, tmp_path / "model.zip", *words)) == 0
    agent = Agent.load(tmp_path / "model.npz")
    assert (agent.activation, len(agent.layers), agent.input_clip) == ("elu", 4, 1.0)
    for observation in np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32):
        expected = model.predict(env.normalize_obs(observation), deterministic=True)[0]
        np.testing.assert_allclose(agent(observation), expected, atol=1e-5)


def test_a_model_for_another_environment_is_refused(tmp_path: Path) -> None:
    sb3.PPO("MlpPolicy", "Pendulum-v1", n_steps=64, device="cpu").save(tmp_path / "model.zip")
    with pytest.raises(InvalidInput, match="another environment"):
        import_sb3.run(parse(import_sb3, tmp_path / "model.zip", "--env", "CartPole-v1"))
    assert not (tmp_path / "model.npz").exists()


def test_a_file_that_is_no_model_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "text.zip").write_text("hello")
    for name, reason in (("text.zip", "no model saved"), ("none.zip", "does not exist")):
        with pytest.raises(InvalidInput, match=f"{name}.*{reason}"):
            import_sb3.run(parse(import_sb3, tmp_path / name, "--env", "CartPole-v1"))


def test_a_training_of_no_steps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="steps"):
        ppo.run(parse(cartpole, "--steps", 0, "--out", tmp_path / "x.npz"), cartpole.RECIPE)
