"""Examples of sonde.worlds."""

# %% setup
import jax.numpy as jnp
import numpy as np

# %% Pendulum, MountainCar
from sonde.worlds import MountainCar, Pendulum

world = Pendulum(mass=0.8, max_torque=1.5)
hanging = jnp.array([-1.0, 0.0, 0.0])  # cosine and sine of the angle, and its velocity
print(world.dynamics(hanging, jnp.array([1.0])))
print(MountainCar().state_names, list(MountainCar().tasks))

# %% Reacher, Swimmer, Cheetah, FetchConstruction
from sonde.worlds import Cheetah, FetchConstruction, Reacher, Swimmer

# on MuJoCo, opened when they are used; the extras 'mujoco' and 'fetch' have what they need
for world in (Reacher(), Swimmer(), Cheetah(friction_scale=0.8), FetchConstruction(blocks=2)):
    print(type(world).__name__, world.state_dim, world.action_dim, list(world.tasks))

# %% GymWorld
from sonde.worlds import GymWorld

world = GymWorld(env="Pendulum-v1", options='{"g": 9.0}')
print(world.state_dim, world.action_dim)  # 3 1

# %% FmuWorld
from sonde.worlds import FmuWorld

# an FMU for co-simulation, from Modelica tools or Simulink; the extra 'fmu' has what it needs
world = FmuWorld("plant.fmu", ranges=("torque=-2:2",), start_values=("gravity=1.62", "angle=-0.5:0.5"))
print(world.file, world.ranges)  # the file is read when its names are asked for, or when it is opened

# %% Delayed, Observed
from sonde.worlds import Delayed, Observed, Pendulum

late = Delayed(Pendulum(), steps=2)  # explore it with RunConfig(delay=2)
angle_only = Observed(Pendulum(), names=("cos th", "sin th"))  # explore it with RunConfig(history=2)
print(late.state_names, angle_only.state_names, list(angle_only.tasks))

# %% OwnSystem, has_simulator
from sonde import OwnSystem
from sonde.worlds import Pendulum, has_simulator

robot = OwnSystem(states=("position", "speed"), actions=("push",))
print(robot.spec)
print(has_simulator(Pendulum()), has_simulator(robot))  # True False: only you can run the robot

# %% WORLDS
from sonde.worlds import WORLDS

print({name: kind.__name__ for name, kind in WORLDS.items()})  # names for the command line

# %% Task, RewardFunction
from sonde import Task
from sonde.worlds import RewardFunction


def stand(x, u, x_next):
    return -jnp.sum((x_next - jnp.array([1.0, 0.0, 0.0])) ** 2)


reward: RewardFunction = stand
task = Task(reward, success=lambda states: float(states[-1, 0] > 0.95))  # from 0 to 1
print(task.success(np.array([[1.0, 0.0, 0.0]])))  # 1.0

# %% GoalTask, GoalRewardFunction
from sonde import GoalTask
from sonde.worlds import GoalRewardFunction


def near(x, u, x_next, goal):
    return -jnp.abs(x_next[0] - goal[0])


reward: GoalRewardFunction = near
task = GoalTask(reward, sample_goal=lambda rng: rng.uniform(-1, 1, 1))
goal = task.sample_goal(np.random.default_rng(0))  # drawn for each rollout
print(goal, task.reward(jnp.zeros(2), jnp.zeros(1), jnp.zeros(2), jnp.asarray(goal)))

# %% World, JaxWorld, Transitions, Plane
from dataclasses import dataclass

from sonde.worlds import JaxWorld, Plane, Transitions, World


@dataclass(frozen=True)
class Spring(JaxWorld):
    """A mass on a spring, pushed by the action."""

    stiffness: float = 1.0

    @property
    def state_names(self):
        return ("position", "velocity")

    @property
    def action_names(self):
        return ("force",)

    def reset(self, key):
        return jnp.zeros(2)

    def dynamics(self, x, u):
        velocity = x[1] + 0.1 * (u[0] - self.stiffness * x[0])
        return jnp.stack([x[0] + 0.1 * velocity, velocity])

    def step(self, x, u, key):
        return self.dynamics(x, u)  # plus noise, if there is any

    def reachable_points(self):  # where models are judged
        rng = np.random.default_rng(0)
        return rng.uniform(-1, 1, (200, 2)), rng.uniform(-1, 1, (200, 1))

    def plane(self):  # figures of visited states
        return Plane("position", "velocity", lambda states: (states[..., 0], states[..., 1]))


world: World = Spring(stiffness=2.0)
reachable: Transitions = world.reachable()
print(reachable.next_states.shape)  # (200, 2)

# %% HostWorld, Simulators, Stepped
from dataclasses import dataclass

from sonde.worlds import HostWorld, Simulators, Stepped


class Tanks(Simulators):
    """Copies of a tank that leaks, in numpy; any simulator that is not written in JAX has the same three methods."""

    def __init__(self, copies):
        self.level = np.zeros((copies, 1))

    def reset(self, seeds):
        self.level = np.array([np.random.default_rng(seed).uniform(0, 1, 1) for seed in seeds])
        return self.level

    def step(self, actions):
        self.level = 0.95 * self.level + 0.1 * np.maximum(actions, 0)
        never = np.zeros(len(self.level), bool)
        return Stepped(self.level, terminated=self.level[:, 0] > 1.5, truncated=never)

    def restart(self, which):
        self.level = np.where(which[:, None], 0.5, self.level)
        return self.level


@dataclass(frozen=True)
class Tank(HostWorld):
    @property
    def state_names(self):
        return ("level",)

    @property
    def action_names(self):
        return ("inflow",)

    def reachable(self):
        return None  # not known

    def open(self, num_copies):
        return Tanks(num_copies)


copies = Tank().open(2)
copies.reset([0, 1])
print(copies.step(np.ones((2, 1))).next_states)

# %% Coordinates
from sonde.worlds import Coordinates, Pendulum

coordinates: Coordinates = Pendulum().coordinates()  # the angle, which states have as cosine and sine
q = jnp.array([0.5, 0.0])
print(coordinates.names, coordinates.to_state(q), coordinates.periods)

# %% ConstraintFunction, Feedback
from sonde.worlds import ConstraintFunction, Feedback, Pendulum

within_speed: ConstraintFunction = Pendulum().constraints["speed"]  # 5 - |thdot| after the step
brake: Feedback | None = Pendulum().brake  # a cautious feedback u = f(x)
fast = jnp.array([-1.0, 0.0, 6.0])
print(within_speed(fast, jnp.zeros(1), fast))  # -1: violated
print(brake(fast))  # -1: the largest torque against the motion
