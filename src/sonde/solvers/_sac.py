"""Model-based soft actor-critic: a policy for tasks with long horizons, trained on imagined transitions.

Each of K training steps samples P visited states, imagines H steps from each under the present policy, adds them to the buffer
of imagined transitions, and takes G gradient steps of soft actor-critic (Haarnoja et al. 2018) on the buffer: twin critics with
slowly moving target critics, and a temperature that keeps the entropy of the policy at its target. The extra controls of the
imagination (eta) are part of the actor's output, so optimism is learned together with the policy. If the imagination has an
adversary, a second actor learns the adversary's controls (`sonde.solvers.adversarial._learning`). With constraints, a step
after which some plausible next state violates them costs a Lagrange multiplier, which grows while there are such steps.

Rewards may have any size: the critics predict returns in units of `scale`, which follows the imagined rewards. When it changes,
the last layers of the critics are rescaled so that their predictions stay the same.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Float32, Int, Key

from sonde._internal.errors import SondeError, positive, whole
from sonde._internal.randomness import for_purpose
from sonde.data import Data
from sonde.imagination import draw_noise
from sonde.models._network import Network
from sonde.models._normaliser import Normaliser
from sonde.solvers._actor import ActorPolicy, adversary_controls, squashed_gaussian
from sonde.solvers._base import Solver
from sonde.solvers._learner import (
    INITIAL_MULTIPLIER,
    Adversary,
    Batch,
    Learner,
    actor_loss,
    critic_loss,
    min_q_value,
    replace_nonfinite,
    with_next_multiplier,
    with_rescaled_critics,
)
from sonde.solvers._problem import ControlProblem
from sonde.solvers.adversarial._learning import AdversaryProblem, adversary_update, complete_steps, pending_steps

ADVERSARY_STREAM = "opponent"  # name of the adversary's random stream, which results depend on


class Trained(eqx.Module):
    """A trained learner and its units."""

    learner: Learner
    normaliser: Normaliser
    scale: Float32[Array, ""]
    """Unit of the returns that the critics predict."""

    def value(self, x: Float[Array, " dx"], control: Float[Array, " dc"]) -> Float32[Array, ""]:
        """The discounted return that the critics predict.

        Args:
            x: State.
            control: Controls of the actor in that state.
        """
        states, controls = self.normaliser(x)[None].astype(jnp.float32), control[None].astype(jnp.float32)
        return self.scale * min_q_value(self.learner.critics, states, controls)[0]


@dataclass(frozen=True)
class SAC(Solver):
    """Soft actor-critic on imagined transitions: trains a policy once per round, for tasks that need long horizons."""

    single_particle: ClassVar[bool] = True
    keeps_constraints: ClassVar[bool] = True

    training_steps: int = 35
    """Training steps, each of which imagines transitions and then learns from the buffer (K)."""
    gradient_steps: int = 350
    """Gradient steps per training step (G)."""
    starts: int = 500
    """Visited states from which each training step imagines (P)."""
    horizon: int = 4
    """Steps imagined from each of these states (H)."""
    batch_size: int = 32
    """Imagined transitions per gradient step."""
    discount: float = 0.99
    """Discount factor per step."""
    actor: tuple[int, ...] = (64, 64)
    """Widths of the actor's hidden layers."""
    critic: tuple[int, ...] = (256, 256)
    """Widths of the critics' hidden layers."""
    actor_learning_rate: float = 5e-4
    """Learning rate (Adam) of the actor."""
    critic_learning_rate: float = 5e-4
    """Learning rate (Adam) of the critics."""
    temperature_learning_rate: float = 5e-4
    """Learning rate (Adam) of the logarithm of the temperature."""
    initial_temperature: float = 0.1
    """Initial value of a nat of entropy, in units of the scaled rewards."""
    target_entropy: float = -1.0
    """Entropy to maintain, per control."""
    tau: float = 0.005
    """Rate at which the target critics follow the critics, per gradient step."""
    buffer: int = 500_000
    """Capacity of the buffer of imagined transitions, rounded to whole training steps; the oldest are overwritten first."""

    def __post_init__(self):
        """Reject settings that cannot work."""
        whole(
            "solver",
            training_steps=self.training_steps,
            gradient_steps=self.gradient_steps,
            starts=self.starts,
            horizon=self.horizon,
            batch_size=self.batch_size,
            buffer=self.buffer,
        )
        positive(
            "solver",
            actor_learning_rate=self.actor_learning_rate,
            critic_learning_rate=self.critic_learning_rate,
            temperature_learning_rate=self.temperature_learning_rate,
            initial_temperature=self.initial_temperature,
        )
        for name in ("actor", "critic"):
            widths = getattr(self, name)
            if not widths or not all(isinstance(width, int) and width > 0 for width in widths):
                raise SondeError(f"solver: {name} must list the widths of its hidden layers, such as 64 64, got {widths}")
        for name, low, high in (("discount", 0.0, 0.9999), ("tau", 1e-6, 1.0)):
            if not low <= getattr(self, name) <= high:
                raise SondeError(f"solver: {name} must lie in [{low:g}, {high:g}], got {getattr(self, name)}")
        if not abs(self.target_entropy) < float("inf"):
            raise SondeError(f"solver: target_entropy must be finite, got {self.target_entropy}")

    def policy(self, problem: ControlProblem, data: Data, key: Key[Array, ""]) -> ActorPolicy:
        """Train an actor from scratch."""
        trained = self.train(problem, data, key)
        adversary = None if trained.learner.adversary is None else trained.learner.adversary.network
        return ActorPolicy(trained.learner.actor, trained.normaliser, problem.action_dim, adversary, past=problem.past)

    def exploration_policy(self, problem: ControlProblem, data: Data, key: Key[Array, ""]) -> ActorPolicy:
        """Train an actor from scratch, and sample from it."""
        return replace(self.policy(problem, data, key), samples=True)

    def first_policy(self, problem: ControlProblem, data: Data, key: Key[Array, ""]) -> ActorPolicy:
        """Sample from an untrained actor: there is no visited state yet to imagine from. With constraints it is trained."""
        if problem.safety is not None:
            return self.exploration_policy(problem, data, key)
        learner = self._init(problem, jax.random.split(key)[0])
        normaliser = Normaliser.of(data.states, data.mask())
        return ActorPolicy(learner.actor, normaliser, problem.action_dim, samples=True, past=problem.past)

    def train(self, problem: ControlProblem, data: Data, key: Key[Array, ""]) -> Trained:
        """Run all training steps.

        Args:
            problem: The control problem.
            data: The measurements so far; imagined trajectories start at visited states.
            key: Randomness.
        """
        normaliser = Normaliser.of(data.states, data.mask())
        init_key, train_key = jax.random.split(key)
        learner = self._init(problem, init_key)
        slots = max(1, min(self.training_steps, self.buffer // self.transitions_per_step))

        def imagine(learner, start_key, key):
            return self._imagine(problem, learner, normaliser, sample_states(data, self.starts, start_key), key)

        zeros = lambda leaf: jnp.zeros((slots, *leaf.shape), leaf.dtype)
        buffer = jax.tree.map(zeros, jax.eval_shape(imagine, learner, train_key, train_key))

        def training_step(carry, k):
            learner, buffer, scale = carry
            start_key, imagine_key, learn_key = jax.random.split(jax.random.fold_in(train_key, k), 3)
            imagined = imagine(learner, start_key, imagine_key)
            learner = with_next_multiplier(learner, imagined)
            buffer = jax.tree.map(lambda all, new: all.at[k % slots].set(new), buffer, imagined)
            filled = jnp.minimum(k + 1, slots)
            # the scale never falls: when a rare large reward leaves the buffer, small rewards must not be amplified
            larger = jnp.maximum(scale, self._return_scale(buffer.rewards, filled))
            learner = with_rescaled_critics(learner, jnp.where(scale > 0, scale / jnp.where(scale > 0, larger, 1.0), 1.0))
            unit, adversary_problem = jnp.where(larger > 0, larger, 1.0), None
            if problem.adversary_dim:
                low, high = (limit(buffer.states, axis=(0, 1)) for limit in (jnp.min, jnp.max))
                adversary_problem = AdversaryProblem(problem, normaliser, unit, low, high)
            transitions = filled * self.transitions_per_step
            return (self._learn(learner, buffer, transitions, unit, adversary_problem, learn_key), buffer, larger), None

        carry = (learner, buffer, jnp.zeros((), jnp.float32))
        (learner, _, scale), _ = jax.lax.scan(training_step, carry, jnp.arange(self.training_steps))
        return Trained(learner, normaliser, jnp.where(scale > 0, scale, 1.0))

    @property
    def transitions_per_step(self) -> int:
        """Number of transitions that a training step imagines."""
        return self.starts * self.horizon

    def _optimisers(self, parts: int) -> tuple[optax.GradientTransformation, ...]:
        """For actor, critics and temperature, and for the adversary if there is a fourth part."""
        rates = (self.actor_learning_rate, self.critic_learning_rate, self.temperature_learning_rate, self.actor_learning_rate)
        return tuple(optax.adam(rate) for rate in rates[:parts])

    def _init(self, problem: ControlProblem, key: Key[Array, ""]) -> Learner:
        dx, dc, da = problem.full_dim, problem.control_dim, problem.adversary_dim
        keys = jax.random.split(key, 3)
        actor = Network.init((dx, *self.actor, 2 * dc), keys[0])
        one, two = (Network.init((dx + dc, *self.critic, 1), k) for k in keys[1:])
        temperature = jnp.log(jnp.asarray(self.initial_temperature, jnp.float32))
        trained: Any = (actor, (one, two), temperature)
        if da:
            network = Network.init((dx + dc, *self.actor, 2 * da), for_purpose(key, ADVERSARY_STREAM))
            trained += (Adversary(network, temperature),)
        states = tuple(optimiser.init(part) for optimiser, part in zip(self._optimisers(len(trained)), trained, strict=True))
        learner = Learner(actor, (one, two), (one, two), temperature, states, *trained[3:])
        cost = None if problem.safety is None else jnp.asarray(INITIAL_MULTIPLIER, jnp.float32)
        return replace(learner, multiplier=cost)

    def _imagine(
        self,
        problem: ControlProblem,
        learner: Learner,
        normaliser: Normaliser,
        starts: Float[Array, "P dx"],
        key: Key[Array, ""],
    ) -> Batch:
        """H steps from each start under the present policy, flattened to P * H transitions."""
        draws_key, noise_key = jax.random.split(key)
        draws = jax.vmap(lambda k: draw_noise(k, self.horizon, problem.state_dim))(jax.random.split(draws_key, self.starts))
        noise = jax.random.normal(noise_key, (self.horizon, self.starts, problem.control_dim), jnp.float32)
        particles = jnp.arange(self.starts)

        def step(x, inputs):
            noise, draws = inputs
            states = normaliser(x).astype(jnp.float32)
            controls, _ = squashed_gaussian(learner.actor(states), noise)
            if learner.adversary is None:
                steps, outcome = None, jax.vmap(problem.step)(x, controls.astype(x.dtype), particles, draws)
            else:
                steps = pending_steps(problem, x, controls, draws)
                outcome = complete_steps(problem, steps, adversary_controls(learner.adversary.network, states, controls))
            x_next, rewards = replace_nonfinite(x, *outcome)
            risky = None
            if problem.safety is not None:
                risky = jax.vmap(problem.is_risky)(x, controls[:, : problem.action_dim].astype(x.dtype))
            found = states, controls, rewards, normaliser(x_next), steps, risky
            row = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), found)
            return x_next.astype(x.dtype), Batch(*row)

        rows = jax.lax.scan(step, starts, (noise, jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), draws)))[1]
        return jax.tree.map(lambda leaf: leaf.reshape(self.transitions_per_step, *leaf.shape[2:]), rows)

    def _return_scale(self, rewards: Float32[Array, "slots n"], filled: Int[Array, ""]) -> Float32[Array, ""]:
        """The unit of returns: the rewards' root mean square, times the root of the discounted horizon 1 / (1 - discount)."""
        largest = jnp.max(jnp.abs(rewards))  # divided out, because squares of tiny rewards underflow in single precision
        relative = rewards / jnp.where(largest > 0, largest, 1.0)
        total = jnp.sum(jnp.square(relative), dtype=jnp.float32)
        mean = total / (filled * self.transitions_per_step).astype(jnp.float32)
        return largest * jnp.sqrt(mean) / (1 - self.discount) ** 0.5

    def _learn(
        self,
        learner: Learner,
        buffer: Batch,
        transitions: Int[Array, ""],
        scale: Float32[Array, ""],
        adversary_problem: AdversaryProblem | None,
        key: Key[Array, ""],
    ) -> Learner:
        """Take G gradient steps on the first `transitions` rows of the buffer."""
        row_key, noise_key = jax.random.split(key)
        rows = jax.random.randint(row_key, (self.gradient_steps, self.batch_size), 0, transitions)
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), buffer)
        batches = jax.tree.map(lambda leaf: leaf[rows], flat)
        batches = batches._replace(rewards=batches.rewards / scale)
        # for the controls in the states, and in the next states
        noise = jax.random.normal(noise_key, (self.gradient_steps, 2, *batches.controls.shape[1:]), jnp.float32)
        adversary_noise = None
        if adversary_problem is not None:
            shape = (*rows.shape, adversary_problem.problem.adversary_dim)
            adversary_noise = jax.random.normal(for_purpose(noise_key, ADVERSARY_STREAM), shape, jnp.float32)
        step = lambda learner, inputs: (self._gradient_step(learner, adversary_problem, *inputs), None)
        return jax.lax.scan(step, learner, (batches, noise, adversary_noise))[0]

    def _gradient_step(
        self,
        learner: Learner,
        adversary_problem: AdversaryProblem | None,
        batch: Batch,
        noise: Float32[Array, "2 batch dc"],
        adversary_noise: Float32[Array, "batch da"] | None,
    ) -> Learner:
        temperature = jnp.exp(learner.log_temperature)

        def critic_target(rewards, next_states):
            next_controls, log_density = squashed_gaussian(learner.actor(next_states), noise[1])
            next_value = min_q_value(learner.target_critics, next_states, next_controls) - temperature * log_density
            return rewards + self.discount * next_value

        adversary_gradient: tuple[Any, ...] = ()
        if learner.adversary is not None and adversary_problem is not None and adversary_noise is not None:
            batch, gradient = adversary_update(
                learner.adversary, adversary_problem, batch, critic_target, adversary_noise, self.target_entropy
            )
            adversary_gradient = (gradient,)
        rewards = batch.rewards
        if learner.multiplier is not None and batch.risky is not None:
            rewards = rewards - learner.multiplier * batch.risky
        target = critic_target(rewards, batch.next_states)
        critics_gradient = jax.grad(critic_loss)(learner.critics, batch, target)
        actor_gradient, log_density = jax.grad(actor_loss, has_aux=True)(
            learner.actor, learner.critics, temperature, batch.states, noise[0]
        )
        # raises the temperature while the entropy, which is minus the mean log-density, is below its target
        temperature_gradient = -(log_density + self.target_entropy * batch.controls.shape[-1])
        return self._updated(learner, (actor_gradient, critics_gradient, temperature_gradient, *adversary_gradient))

    def _updated(self, learner: Learner, gradients: tuple[Any, ...]) -> Learner:
        """The learner after one step of each part's optimiser; the target critics follow."""
        parts = (learner.actor, learner.critics, learner.log_temperature, learner.adversary)[: len(gradients)]
        updated, states = [], []
        for optimiser, part, gradient, state in zip(
            self._optimisers(len(parts)), parts, gradients, learner.optimiser_states, strict=True
        ):
            updates, state = optimiser.update(gradient, state)
            updated.append(optax.apply_updates(cast(Any, part), updates))
            states.append(state)
        follow = lambda target, critic: target + self.tau * (critic - target)
        target_critics = jax.tree.map(follow, learner.target_critics, updated[1])
        after = Learner(updated[0], updated[1], target_critics, updated[2], tuple(states), *updated[3:])
        return replace(after, multiplier=learner.multiplier)


def sample_states(data: Data, count: int, key: Key[Array, ""]) -> Float[Array, "count dx"]:
    """Visited states; before any measurement standard normal ones, the inputs that an untrained model expects.

    Args:
        data: The measurements of one seed.
        count: Number of states.
        key: Randomness.
    """
    rows = jax.random.randint(key, (count,), 0, jnp.maximum(data.count, 1))
    normal = jax.random.normal(key, (count, data.states.shape[1]), data.states.dtype)
    return jnp.where(data.count > 0, data.states[rows], normal)
