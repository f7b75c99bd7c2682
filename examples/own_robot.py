"""Learn a robot of your own: Sonde chooses what to try, you run it.

    python examples/own_robot.py --out runs/cart --rounds 5

The robot here is a cart on a track, simulated in plain numpy so that the example runs anywhere; replace `Cart` by code that
talks to your hardware. Stop the program at any time, even with kill -9: started again, it continues after the last finished
round.
"""

import argparse
import time

import numpy as np

from sonde import ICEM, Experiment, GaussianProcess, Method, OwnSystem, RunConfig, SondeError, Trajectory
from sonde.imagination import Optimistic
from sonde.objectives import InformationGain

RATE = 20.0  # actions per second: the robot does not wait
PERIOD = 1 / RATE
MAX_STEPS = 40  # longest episode


class Cart:
    """A cart with friction on a track of two metres, with slightly noisy sensors. Sonde does not see these equations."""

    def __init__(self, seed: int):
        """Place the cart near the middle, at rest.

        Args:
            seed: Seed of its position and of the sensor noise.
        """
        self.noise = np.random.default_rng(seed)
        self.position, self.speed = self.noise.uniform(-0.2, 0.2), 0.0

    def measure(self) -> np.ndarray:
        """Read the sensors: position in m, speed in m/s."""
        return np.array([self.position, self.speed]) + self.noise.normal(0.0, 0.002, size=2)

    def push(self, action: float) -> None:
        """Apply a force for one period. Friction is viscous and dry, and the track is not level everywhere.

        Args:
            action: Force in units of 3 N, from -1 to 1.
        """
        for _ in range(10):
            dry = 0.3 * np.tanh(self.speed / 0.05)
            slope = 0.8 * np.sin(4.0 * self.position)
            self.speed += PERIOD / 10 * (3.0 * action - 0.5 * self.speed - dry - slope)
            self.position += PERIOD / 10 * self.speed

    def at_the_end(self) -> bool:
        """Whether the cart has reached an end of its track, where a switch stops the motor."""
        return abs(self.position) > 1.0


def run_episode(policy, cart: Cart) -> Trajectory:
    """Run one episode, action by action. This is the part that you write for your own robot."""
    states, actions, next_states = [], [], []
    x = cart.measure()
    while len(states) < MAX_STEPS and not cart.at_the_end():
        began = time.monotonic()
        u = policy(x)  # returns in time, with numbers in [-1, 1]
        cart.push(u[0])
        time.sleep(max(0.0, began + PERIOD - time.monotonic()))
        x_next = cart.measure()
        states.append(x)
        actions.append(u)
        next_states.append(x_next)
        x = x_next
    return Trajectory(np.array(states), np.array(actions), np.array(next_states))


def park(x, u, x_next):
    """Reward for a task that was unknown during exploration: stand still half a metre to the right."""
    return -((x_next[0] - 0.5) ** 2) - 0.02 * x_next[1] ** 2 - 0.001 * u[0] ** 2


def main() -> None:
    """Explore, then park."""
    parser = argparse.ArgumentParser(description="Learn a cart by choosing the experiments that teach most.")
    parser.add_argument("--out", default="runs/cart", help="folder for everything that is measured and learned")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of planning, measuring and learning")
    options = parser.parse_args()
    config = RunConfig(
        world=OwnSystem(states=("position", "speed"), actions=("push",)),
        model=GaussianProcess(rank=64),
        method=Method(Optimistic(particles=5), InformationGain()),
        solver=ICEM(horizon=15, samples=64, elites=8, iterations=5),
        rounds=options.rounds,
        horizon=MAX_STEPS,
    )
    with Experiment(options.out, config) as experiment:
        if experiment.round:
            print(f"continuing after round {experiment.round}", flush=True)
        while not experiment.finished:
            number = experiment.round + 1
            policy = experiment.ask(rate=RATE)
            print(f"round {number}: running", flush=True)
            trajectory = run_episode(policy, Cart(seed=number))
            (row,) = experiment.tell(trajectory)  # on disk when this returns
            gain, steps = row["realised_information_gain"], len(trajectory.states)
            print(f"round {number}: {steps} steps, {gain:.1f} nats learned, {policy.late} late actions", flush=True)
        cart, policy = Cart(seed=0), experiment.solve(park, rate=RATE)
        run_episode(policy, cart)
        print(f"parked at {cart.position:.2f} m (wanted: 0.50 m) with {cart.speed:+.2f} m/s", flush=True)
        print(policy.timing, flush=True)


if __name__ == "__main__":
    try:
        main()
    except SondeError as error:
        raise SystemExit(f"own_robot: {error}") from None
