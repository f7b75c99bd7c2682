"""Model-based soft actor-critic: a policy for long horizons, trained on imagined transitions.

K times: sample P states that were really visited, imagine H steps from each under the present policy, add them to the buffer of
imagined transitions, and take G gradient steps of soft actor-critic (Haarnoja et al. 2018) on it: twin critics with slowly
following targets, and a temperature that holds the policy's entropy at its target. What the imagination lets a planner choose
(eta) is part of the actor's output, so that optimism is learned with the policy. What it lets an adversary choose instead is
learned by a second actor, against the first (`adversary`).

Rewards may be of any size: the critics predict returns in units of `scale`, which follows the rewards that are met. When it
changes, the critics' last layers are rescaled so that what they predict stays the same.
"""

from dataclasses import dataclass
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
from sonde.solvers._actor import ActorPolicy, response, squashed
from sonde.solvers._base import Solver
from sonde.solvers._learner import Adversary, Batch, Learner, lowest, rescaled, sound, value
from sonde.solvers._problem import ControlProblem
from sonde.solvers.adversarial import _learning as adversary
from sonde.solvers.adversarial._learning import AdversaryProblem


class Trained(eqx.Module):
    """A learner, and the units in which it thinks."""

    learner: Learner
    normaliser: Normaliser
    scale: Float32[Array, ""]

    def value(self, x: Float[Array, " dx"], control: Float[Array, " dc"]) -> Float32[Array, ""]:
        """The discounted return that the critics expect from taking `control` in `x`."""
        states, controls = self.normaliser(x)[None].astype(jnp.float32), control[None].astype(jnp.float32)
        return self.scale * lowest(self.learner.critics, states, controls)[0]


@dataclass(frozen=True)
class SAC(Solver):
    """Soft actor-critic on imagined transitions: trains a policy once per episode, for tasks that need long horizons."""

    one_particle: ClassVar[bool] = True

    training_steps: int = 35
    """Rounds of imagining and learning (K)."""
    gradient_steps: int = 350
    """Gradient steps of each round (G)."""
    starts: int = 500
    """Visited states from which each round imagines (P)."""
    horizon: int = 4
    """Steps that are imagined from each of them (H)."""
    batch_size: int = 32
    """Imagined transitions per gradient step."""
    discount: float = 0.99
    """What a reward one step later is worth."""
    actor: tuple[int, ...] = (64, 64)
    """Neurons of the actor's hidden layers."""
    critic: tuple[int, ...] = (256, 256)
    """Neurons of the critics' hidden layers."""
    actor_learning_rate: float = 5e-4
    """Adam's, for the actor."""
    critic_learning_rate: float = 5e-4
    """Adam's, for the critics."""
    temperature_learning_rate: float = 5e-4
    """Adam's, for the logarithm of the temperature."""
    initial_temperature: float = 0.1
    """What a nat of entropy is worth at first, in units of the scaled rewards."""
    target_entropy: float = -1.0
    """The entropy to hold, per control."""
    tau: float = 0.005
    """How much of the critics the target critics take over at each gradient step."""
    buffer: int = 500_000
    """Imagined transitions that are kept, rounded to whole rounds; the oldest go first."""

    def __post_init__(self):
        """Refuse settings that cannot work."""
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
        """An actor that is trained from scratch."""
        trained = self.train(problem, data, key)
        adversary = None if trained.learner.adversary is None else trained.learner.adversary.network
        return ActorPolicy(trained.learner.actor, trained.normaliser, problem.action_dim, adversary)

    def train(self, problem: ControlProblem, data: Data, key: Key[Array, ""]) -> Trained:
        """K rounds of imagining and learning."""
        normaliser = Normaliser.of(data.states, data.mask())
        init_key, train_key = jax.random.split(key)
        learner = self._init(problem, init_key)
        slots = max(1, min(self.training_steps, self.buffer // self.round_size))

        def imagine(learner, start_key, key):
            return self._imagine(problem, learner, normaliser, _sample_states(data, self.starts, start_key), key)

        zeros = lambda leaf: jnp.zeros((slots, *leaf.shape), leaf.dtype)
        buffer = jax.tree.map(zeros, jax.eval_shape(imagine, learner, train_key, train_key))

        def one_round(carry, k):
            learner, buffer, scale = carry
            start_key, imagine_key, learn_key = jax.random.split(jax.random.fold_in(train_key, k), 3)
            imagined = imagine(learner, start_key, imagine_key)
            buffer = jax.tree.map(lambda all, new: all.at[k % slots].set(new), buffer, imagined)
            filled = jnp.minimum(k + 1, slots)
            # it never falls: a rare reward that the buffer has forgotten must not make noise of all others
            larger = jnp.maximum(scale, self._scale(buffer.rewards, filled))
            learner = rescaled(learner, jnp.where(scale > 0, scale / jnp.where(scale > 0, larger, 1.0), 1.0))
            unit, adversary_problem = jnp.where(larger > 0, larger, 1.0), None
            if problem.adversary_dim:
                low, high = (limit(buffer.states, axis=(0, 1)) for limit in (jnp.min, jnp.max))
                adversary_problem = AdversaryProblem(problem, normaliser, unit, low, high)
            return (
                self._learn(learner, buffer, filled * self.round_size, unit, adversary_problem, learn_key),
                buffer,
                larger,
            ), None

        carry = (learner, buffer, jnp.zeros((), jnp.float32))
        (learner, _, scale), _ = jax.lax.scan(one_round, carry, jnp.arange(self.training_steps))
        return Trained(learner, normaliser, jnp.where(scale > 0, scale, 1.0))

    @property
    def round_size(self) -> int:
        """Transitions that a round imagines."""
        return self.starts * self.horizon

    def _optimisers(self, parts: int) -> tuple[optax.GradientTransformation, ...]:
        """For actor, critics and temperature; an adversary, the fourth part if there is one, learns like an actor."""
        rates = (self.actor_learning_rate, self.critic_learning_rate, self.temperature_learning_rate, self.actor_learning_rate)
        return tuple(optax.adam(rate) for rate in rates[:parts])

    def _init(self, problem: ControlProblem, key: Key[Array, ""]) -> Learner:
        dx, dc, do = problem.state_dim, problem.control_dim, problem.adversary_dim
        keys = jax.random.split(key, 3)
        actor = Network.init((dx, *self.actor, 2 * dc), keys[0])
        one, two = (Network.init((dx + dc, *self.critic, 1), k) for k in keys[1:])
        temperature = jnp.log(jnp.asarray(self.initial_temperature, jnp.float32))
        trained: Any = (actor, (one, two), temperature)
        if do:
            network = Network.init((dx + dc, *self.actor, 2 * do), for_purpose(key, "opponent"))
            trained += (Adversary(network, temperature),)
        states = tuple(optimiser.init(part) for optimiser, part in zip(self._optimisers(len(trained)), trained, strict=True))
        return Learner(actor, (one, two), (one, two), temperature, states, *trained[3:])

    def _imagine(
        self,
        problem: ControlProblem,
        learner: Learner,
        normaliser: Normaliser,
        starts: Float[Array, "P dx"],
        key: Key[Array, ""],
    ) -> Batch:
        """H steps from each start under the present policy, flattened."""
        draws_key, noise_key = jax.random.split(key)
        draws = jax.vmap(lambda k: draw_noise(k, self.horizon, problem.state_dim))(jax.random.split(draws_key, self.starts))
        noise = jax.random.normal(noise_key, (self.horizon, self.starts, problem.control_dim), jnp.float32)
        particles = jnp.arange(self.starts)

        def step(x, inputs):
            noise, draws = inputs
            states = normaliser(x).astype(jnp.float32)
            controls, _ = squashed(learner.actor(states), noise)
            if learner.adversary is None:
                steps, outcome = None, jax.vmap(problem.step)(x, controls.astype(x.dtype), particles, draws)
            else:
                steps = adversary.pending(problem, x, controls, draws)
                outcome = adversary.respond(problem, steps, response(learner.adversary.network, states, controls))
            x_next, rewards = sound(x, *outcome)
            row = jax.tree.map(lambda leaf: leaf.astype(jnp.float32), (states, controls, rewards, normaliser(x_next), steps))
            return x_next.astype(x.dtype), Batch(*row)

        rows = jax.lax.scan(step, starts, (noise, jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), draws)))[1]
        return jax.tree.map(lambda leaf: leaf.reshape(self.round_size, *leaf.shape[2:]), rows)

    def _scale(self, rewards: Float32[Array, "slots n"], filled: Int[Array, ""]) -> Float32[Array, ""]:
        """The unit of returns: the rewards' root mean square, times the root of the discounted horizon 1 / (1 - discount)."""
        largest = jnp.max(jnp.abs(rewards))  # squares of very small rewards would vanish in single precision
        relative = rewards / jnp.where(largest > 0, largest, 1.0)
        square = jnp.sum(jnp.square(relative), dtype=jnp.float32) / (filled * self.round_size).astype(jnp.float32)
        return largest * jnp.sqrt(square) / (1 - self.discount) ** 0.5

    def _learn(
        self,
        learner: Learner,
        buffer: Batch,
        filled: Int[Array, ""],
        scale: Float32[Array, ""],
        adversary_problem: AdversaryProblem | None,
        key: Key[Array, ""],
    ) -> Learner:
        """G gradient steps."""
        row_key, noise_key = jax.random.split(key)
        rows = jax.random.randint(row_key, (self.gradient_steps, self.batch_size), 0, filled)
        flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), buffer)
        batches = jax.tree.map(lambda leaf: leaf[rows], flat)
        batches = batches._replace(rewards=batches.rewards / scale)
        # for the controls at the states, and at the next states
        noise = jax.random.normal(noise_key, (self.gradient_steps, 2, *batches.controls.shape[1:]), jnp.float32)
        adversary_noise = None
        if adversary_problem is not None:
            shape = (*rows.shape, adversary_problem.problem.adversary_dim)
            adversary_noise = jax.random.normal(for_purpose(noise_key, "opponent"), shape, jnp.float32)
        step = lambda learner, inputs: (self._gradient_step(learner, adversary_problem, *inputs), None)
        return jax.lax.scan(step, learner, (batches, noise, adversary_noise))[0]

    def _gradient_step(
        self,
        learner: Learner,
        adversary_problem: AdversaryProblem | None,
        batch: Batch,
        noise: Float32[Array, "2 batch dc"],
        adversary_noise: Float32[Array, "batch do"] | None,
    ) -> Learner:
        temperature = jnp.exp(learner.log_temperature)

        def wanted(rewards, next_states):
            """What the critics are to learn."""
            next_controls, next_density = squashed(learner.actor(next_states), noise[1])
            next_value = lowest(learner.targets, next_states, next_controls) - temperature * next_density
            return rewards + self.discount * next_value

        trained: tuple[Any, ...] = (learner.actor, learner.critics, learner.log_temperature)
        adversary_gradient: tuple[Any, ...] = ()
        if learner.adversary is not None and adversary_problem is not None and adversary_noise is not None:
            batch, gradient = adversary.adversary_update(
                learner.adversary, adversary_problem, batch, wanted, adversary_noise, self.target_entropy
            )
            trained, adversary_gradient = (*trained, learner.adversary), (gradient,)
        target = wanted(batch.rewards, batch.next_states)

        def critic_loss(critics):
            predicted = [value(critic, batch.states, batch.controls) for critic in critics]
            return sum(0.5 * jnp.mean((each - target) ** 2) for each in predicted)

        critics_gradient = jax.grad(critic_loss)(learner.critics)

        def actor_loss(actor):
            controls, density = squashed(actor(batch.states), noise[0])
            value = lowest(learner.critics, batch.states, controls)
            return jnp.mean(temperature * density - value), jnp.mean(density)

        actor_gradient, density = jax.grad(actor_loss, has_aux=True)(learner.actor)
        # raises the temperature while the entropy, minus the mean log-density, is below its target
        temperature_gradient = -(density + self.target_entropy * batch.controls.shape[-1])
        gradients: Any = (actor_gradient, critics_gradient, temperature_gradient, *adversary_gradient)
        moved, states = [], []
        for optimiser, part, gradient, state in zip(
            self._optimisers(len(trained)), trained, gradients, learner.optimiser_states, strict=True
        ):
            updates, state = optimiser.update(gradient, state)
            moved.append(optax.apply_updates(cast(Any, part), updates))
            states.append(state)
        follow = lambda target, critic: target + self.tau * (critic - target)
        targets = jax.tree.map(follow, learner.targets, moved[1])
        return Learner(moved[0], moved[1], targets, moved[2], tuple(states), *moved[3:])


def _sample_states(data: Data, count: int, key: Key[Array, ""]) -> Float[Array, "count dx"]:
    """Visited states; before any measurement, standard normal ones, which is what an untrained model takes for likely."""
    drawn = jax.random.randint(key, (count,), 0, jnp.maximum(data.count, 1))
    imagined = jax.random.normal(key, (count, data.states.shape[1]), data.states.dtype)
    return jnp.where(data.count > 0, data.states[drawn], imagined)
