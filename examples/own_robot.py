"""Learn a robot of your own: Sonde chooses what to try, you run it.

    python examples/own_robot.py --out runs/cart --episodes 5

The robot here is a cart on a track, simulated in plain numpy so that the example runs anywhere; replace `Cart` by what speaks
to your hardware. Stop the program whenever you like, even with kill -9: started again, it goes on after the last episode that
was finished.
"""

import argparse
import time

import numpy as np

from sonde import ICEM, Experiment, GaussianProcess, OwnSystem, RunConfig, SondeError, Trajectory

RATE = 20.0  # actions per second: the robot does not wait
PERIOD = 1 / RATE
LONGEST = 40  # actions in an episode, at most


class Cart:
    """A cart with friction on a track of two metres, whose sensors are a little noisy. Sonde sees none of these equations."""

    def __init__(self, seed: int):
        """Stands somewhere near the middle; `seed` says where, and how the sensors err."""
        self.noise = np.random.default_rng(seed)
        self.position, self.speed = self.noise.uniform(-0.2, 0.2), 0.0

    def measure(self) -> np.ndarray:
        """What the sensors say: position in m, speed in m/s."""
        return np.array([self.position, self.speed]) + self.noise.normal(0.0, 0.002, size=2)

    def perturbation(self, action: float) -> None:
        """Push with up to 3 N for one period. Friction is viscous and dry, and the track is not level everywhere."""
        for _ in range(10):
            dry = 0.3 * np.tanh(self.speed / 0.05)
            slope = 0.8 * np.sin(4.0 * self.position)
            self.speed += PERIOD / 10 * (3.0 * action - 0.5 * self.speed - dry - slope)
            self.position += PERIOD / 10 * self.speed

    def at_the_end(self) -> bool:
        """Whether the cart has reached an end of its track, where a switch stops the motor."""
        return abs(self.position) > 1.0


def run_episode(policy, cart: Cart) -> Trajectory:
    """One episode, action by action. This is the part that you write for your own robot."""
    states, actions, next_states = [], [], []
    x = cart.measure()
    while len(states) < LONGEST and not cart.at_the_end():
        began = time.monotonic()
        u = policy(x)  # in time; numbers in [-1, 1]
        cart.perturbation(u[0])
        time.sleep(max(0.0, began + PERIOD - time.monotonic()))
        x_next = cart.measure()
        states.append(x)
        actions.append(u)
        next_states.append(x_next)
        x = x_next
    return Trajectory(np.array(states), np.array(actions), np.array(next_states))


def park(x, u, x_next):
    """A task that nobody thought of while the robot was explored: stand still half a metre to the right."""
    return -((x_next[0] - 0.5) ** 2) - 0.02 * x_next[1] ** 2 - 0.001 * u[0] ** 2


def main() -> None:
    """Explore, then park."""
    options = argparse.ArgumentParser(description="Learn a cart by choosing the experiments that teach most.")
    options.add_argument("--out", default="runs/cart", help="folder for all that is measured and learned")
    options.add_argument("--rounds", type=int, default=5, help="experiments to run")
    chosen = options.parse_args()
    config = RunConfig(
        world=OwnSystem(states=("position", "speed"), actions=("perturbation",)),
        rounds=chosen.rounds,
        horizon=LONGEST,
        particles=5,
        model=GaussianProcess(rank=64),
        solver=ICEM(horizon=15, samples=64, elites=8, iterations=5),
    )
    with Experiment(chosen.out, config) as experiment:
        if experiment.round:
            print(f"going on after episode {experiment.round}", flush=True)
        while not experiment.finished:
            number = experiment.round + 1
            policy = experiment.ask(rate=RATE)
            print(f"episode {number}: running", flush=True)
            trajectory = run_episode(policy, Cart(seed=number))
            (row,) = experiment.tell(trajectory)  # on disk when this returns
            gain, steps = row["realised_information_gain"], len(trajectory.states)
            print(f"episode {number}: {steps} steps, {gain:.1f} nats learned, {policy.late} late actions", flush=True)
        cart, policy = Cart(seed=0), experiment.solve(park, rate=RATE)
        run_episode(policy, cart)
        print(f"parked at {cart.position:.2f} m (wanted: 0.50 m) with {cart.speed:+.2f} m/s", flush=True)
        print(policy.timing, flush=True)


if __name__ == "__main__":
    try:
        main()
    except SondeError as error:
        raise SystemExit(f"own_robot: {error}") from None
