"""Examples of sonde.control."""

# %% setup
import jax
import numpy as np

from sonde import METHODS, Explorer, GaussianProcess
from sonde.solvers import ICEM
from sonde.worlds import GymWorld, Pendulum

world = Pendulum()
planner = ICEM(horizon=5, samples=12, elites=4, iterations=2)
explorer = Explorer(METHODS["opax"], GaussianProcess(), planner, world.spec, capacity=100)

# %% Controller
from sonde import Controller

policy: Controller = explorer.ask()
x = np.array([-1.0, 0.0, 0.0])  # cosine and sine of the angle, and its velocity: hanging
for _ in range(3):
    u = policy(x)  # [du], in [-1, 1]
    x = x + np.array([0.0, 0.0, 0.1 * u[0]])  # in place of your system
print(x, policy.num_seeds)
policy.reset()  # a new episode

# %% Timing
from sonde.control import Timing

policy = explorer.ask(budget=5.0)  # at most five seconds per action, however long planning would take
policy(np.array([-1.0, 0.0, 0.0]))
timing: Timing = policy.timing
print(timing.calls, timing.late, timing.worst < 5.0)
print(timing)  # 1 actions, 0 late; median ... ms

# %% rollout
from sonde import rollout

trajectory = rollout(world, explorer.ask(), 10)
print(trajectory.states.shape)  # (1, 10, 3): seeds, steps, dimensions

# %% run_rollouts, RolloutSettings, MAX_COPIES
from sonde.control import MAX_COPIES, RolloutSettings, run_rollouts

settings = RolloutSettings(horizon=5, count=3, max_copies=MAX_COPIES)  # three rollouts, side by side
parts = run_rollouts(world, explorer.ask(), settings)
print(len(parts), parts[0].joined(*parts[1:]).states.shape)  # 3 (1, 15, 3)

# %% start_states
from sonde.control import start_states

keys = jax.random.split(jax.random.key(0), (2, 3))  # two seeds with three rollouts each
print(start_states(world, keys).shape)  # (2, 3, 3)

# %% LinearFeedback
from sonde.control import LinearFeedback

gain, upright = np.array([[-3.0, 4.0, 1.0]]), np.array([1.0, 0.0, 0.0])
balance = LinearFeedback(gain, state=upright, action=np.zeros(1))
print(balance(np.array([0.995, 0.1, 0.0])))  # u = action - gain (x - state), in [-1, 1]

# %% GainSchedule
from sonde.control import GainSchedule

table = GainSchedule(
    axes=(np.array([0.0, 1.0]),),  # one scheduling variable, with two values
    gains=np.array([[[1.0, 0.5]], [[2.0, 0.5]]]),
    states=np.array([[0.0, 0.0], [1.0, 0.0]]),
    actions=np.array([[0.0], [0.2]]),
    scheduled=(0,),  # it is the first entry of the state
)
print(table(np.array([0.5, 0.1])), table.at([0.5]).gain)  # halfway between both

# %% to_c, to_onnx
from sonde.control import LinearFeedback, to_c, to_onnx

balance = LinearFeedback(np.array([[-3.0, 4.0, 1.0]]), state=np.array([1.0, 0.0, 0.0]), action=np.zeros(1))
header = to_c(balance, "balance")  # int balance_act(const double *x, double *u)
graph = to_onnx(balance)  # content of a file: x [batch, 3] -> action [batch, 1]
print(len(header), len(graph))

# %% Ongoing
from sonde.control import Ongoing

explorer = Explorer(METHODS["random"], GaussianProcess(), planner, Pendulum().spec, capacity=100)
with Ongoing(Pendulum(), explorer.evaluation_keys()) as system:  # it is never put back
    for _ in range(2):
        trajectory = system.rollout(explorer.ask(), 5)
        explorer.tell(trajectory)
        print(trajectory.states[0, 0], trajectory.next_states[0, -1])  # a round starts where the last one ended

# %% SimulatorPool, OnStep
from sonde import SimulatorPool, rollout
from sonde.control import OnStep

cart = GymWorld(env="Pendulum-v1")
random = Explorer(METHODS["random"], GaussianProcess(), planner, cart.spec, capacity=100)
steps = []
watch: OnStep = lambda step, simulators: steps.append(step)
with SimulatorPool() as pool:  # simulators stay open from one rollout to the next
    for _ in range(2):
        trajectory = rollout(cart, random.ask(), 5, pool=pool, on_step=watch)
print(steps, pool.seconds > 0)  # [1, 2, 3, 4, 5, 1, 2, 3, 4, 5] True
