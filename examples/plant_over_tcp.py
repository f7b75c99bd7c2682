"""Learn a plant that runs in another process, over TCP and in real time; then control it without JAX.

    python examples/plant_over_tcp.py plant                             # stands for your plant; leave it running
    python examples/plant_over_tcp.py explore --out runs/slide          # learn; kill it at any time and start it again
    python examples/plant_over_tcp.py control runs/slide/policies/hold.onnx

The plant has a clock of its own and waits for nobody: 20 times per second it sends a line of JSON with what it measures, and
the last command that has arrived by then acts during the next period. So actions act one step late, which the config says
with `delay=1`. Replace the function `serve` by your plant, and `Link` by what talks to it.

`control` needs numpy and onnxruntime only. Commands that arrive too late are counted on both sides: by the policy, which has a
deadline, and by the plant.
"""

import argparse
import itertools
import json
import select
import socket
import time
from pathlib import Path

import numpy as np

RATE = 20.0  # of the plant, in Hz
PERIOD = 1 / RATE
STEPS = 40  # of an episode
PATIENCE = 3  # periods without a command after which the plant stops its motor
GOAL = 0.5


# ---- the plant: Sonde sees none of this --------------------------------------------------------------------------------------


class Slide:
    """A slide on a rail, with a motor, viscous and dry friction, and slightly noisy sensors."""

    def __init__(self):
        """Start in the middle, at rest."""
        self.random = np.random.default_rng(0)
        self.home()

    def home(self) -> None:
        """Go back to the middle, about."""
        self.position, self.speed = self.random.uniform(-0.2, 0.2), 0.0

    def move(self, action: float) -> None:
        """Run the motor for one period; the rail ends after two metres on both sides.

        Args:
            action: Voltage of the motor, from -1 to 1.
        """
        for _ in range(10):
            self.speed += PERIOD / 10 * (4.0 * action - 2.0 * self.speed - 0.1 * np.tanh(self.speed / 0.05))
            self.position += PERIOD / 10 * self.speed
            if abs(self.position) > 2.0:
                self.position, self.speed = 2.0 * np.sign(self.position), 0.0

    def measure(self) -> dict[str, float]:
        """Read the sensors: m and m/s."""
        position, speed = np.array([self.position, self.speed]) + self.random.normal(0.0, 0.002, 2)
        return {"position": position, "speed": speed}


def serve(port: int) -> None:
    """Run the plant for one client after the other; while there is none, its motor is off."""
    slide = Slide()
    with socket.create_server(("127.0.0.1", port)) as server:
        print(f"listening on port {server.getsockname()[1]}", flush=True)
        while True:
            client, _ = server.accept()
            with client:
                try:
                    run(slide, client)
                except OSError:
                    print("the client is gone: motor off", flush=True)


def run(slide: Slide, client: socket.socket) -> None:
    """Measure, send, move, by the plant's own clock."""
    action, silent, at_home, due = 0.0, 0, False, time.monotonic()
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for tick in itertools.count():
        sent = {"tick": tick, "action": action, "late": silent > 0, "home": at_home, **slide.measure()}
        client.sendall(f"{json.dumps(sent)}\n".encode())
        due += PERIOD
        received = b""
        while select.select([client], [], [], max(0.0, due - time.monotonic()))[0]:
            some = client.recv(4096)
            if not some:
                raise ConnectionError
            received += some
        slide.move(action)
        commands = [json.loads(line) for line in received.splitlines()]  # a line is one packet here
        silent, at_home = 0 if commands else silent + 1, "home" in commands
        if at_home:
            slide.home()
        numbers = [command for command in commands if command != "home"]
        action = float(np.clip(numbers[-1], -1.0, 1.0)) if numbers else 0.0 if at_home or silent > PATIENCE else action


# ---- the other side: what you write for your own plant -----------------------------------------------------------------------


class Link:
    """A connection to the plant."""

    def __init__(self, port: int):
        """Connect.

        Args:
            port: Where the plant listens.
        """
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""

    def __enter__(self) -> "Link":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, command: float | str) -> None:
        """Send an action, or "home"."""
        self.socket.sendall(f"{json.dumps(command)}\n".encode())

    def receive(self) -> list[dict]:
        """Wait for the next measurement; there are several if this process was slow."""
        while b"\n" not in self.rest:
            some = self.socket.recv(2**20)
            if not some:
                raise ConnectionError("the plant has closed the connection")
            self.rest += some
        *lines, self.rest = self.rest.split(b"\n")
        return [json.loads(line) for line in lines]

    def home(self) -> list[dict]:
        """Bring the plant back to its start; the first measurements there."""
        self.send("home")
        while True:
            measured = self.receive()
            for number, row in enumerate(measured):
                if row["home"]:
                    return measured[number:]


def run_episode(policy, link: Link) -> tuple[np.ndarray, np.ndarray, int]:
    """Run one episode.

    Every measurement counts, also those that came while this process was slow, and the actions are those that the plant says it
    has taken.

    Returns:
        States [T + 1, 2], actions [T, 1], and how many actions the plant had to repeat.
    """
    rows = link.home()
    while len(rows) <= STEPS:
        u = policy(np.array([rows[-1]["position"], rows[-1]["speed"]]))
        link.send(float(u[0]))
        rows += link.receive()
    rows = rows[: STEPS + 1]
    states = np.array([[row["position"], row["speed"]] for row in rows])
    # the command that was chosen in one state is the action that acts from the next one on
    return states, np.array([[row["action"]] for row in rows[1:]]), sum(row["late"] for row in rows[1:])


def hold(x, u, x_next):
    """Reward for a task that was unknown during exploration: go to a place and stay there."""
    return -abs(x_next[0] - GOAL) - 0.1 * x_next[1] ** 2


def explore(out: str, rounds: int, port: int) -> None:
    """Explore, learn, then train a policy and export it."""
    from sonde import ICEM, SAC, Experiment, GaussianProcess, Method, OwnSystem, RunConfig, Trajectory, load_policy
    from sonde.control import to_onnx
    from sonde.imagination import Optimistic
    from sonde.objectives import InformationGain
    from sonde.runs import TaskSettings
    from sonde.solvers import SafetySettings

    small = SAC(starts=200, critic=(64, 64), discount=0.95)
    config = RunConfig(
        world=OwnSystem(states=("position", "speed"), actions=("motor",)),
        delay=1,
        model=GaussianProcess(rank=48),
        method=Method(Optimistic(particles=2), InformationGain()),
        solver=ICEM(horizon=8, samples=32, elites=6, iterations=3),
        constraints=("speed=-0.8:0.8",),
        safety=SafetySettings(start="0.4"),  # until something is known, small random actions
        task_settings=(TaskSettings("hold", STEPS, small),),
        rounds=rounds,
        horizon=STEPS,
    )
    with Experiment(out, config) as experiment:
        if experiment.round:
            print(f"continuing after round {experiment.round}", flush=True)
        while not experiment.finished:
            number, policy = experiment.round + 1, experiment.ask(rate=RATE)
            print(f"round {number}: running", flush=True)
            with Link(port) as link:
                states, actions, repeated = run_episode(policy, link)
            print(f"round {number}: learning", flush=True)
            experiment.tell(Trajectory(states[:-1], actions, states[1:]))  # on disk when this returns
            fastest = np.abs(states[:, 1]).max()
            late = f"{policy.late} late, {repeated} repeated by the plant"
            print(f"round {number}: {len(actions)} steps, {late}, at most {fastest:.2f} m/s", flush=True)
        experiment.solve(hold)
    policies = Path(out) / "policies"
    (policies / "hold.onnx").write_bytes(to_onnx(load_policy(policies / "hold.safetensors")))
    print(f"exported: {policies / 'hold.onnx'}", flush=True)


class OnnxPolicy:
    """An exported policy. It remembers the action that is on its way, in numbers that the graph hands back."""

    def __init__(self, path: str):
        """Load the graph.

        Args:
            path: The file.
        """
        import onnxruntime

        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        (memory,) = [given for given in self.session.get_inputs() if given.name == "memory"]
        self.memory = np.zeros((1, memory.shape[1]))

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Choose an action.

        Args:
            x: State [dx].

        Returns:
            The action [du].
        """
        action, self.memory = self.session.run(["action", "next_memory"], {"x": x[None], "memory": self.memory})
        return np.asarray(action)[0]


def control(file: str, port: int) -> None:
    """Hold the plant at its goal with the exported policy."""
    with Link(port) as link:
        states, actions, repeated = run_episode(OnnxPolicy(file), link)
    total = sum(hold(*row) for row in zip(states[:-1], actions, states[1:], strict=True))
    print(f"at {states[-1, 0]:.2f} m (wanted: {GOAL:.2f} m); return {total:.2f}, {repeated} actions repeated by the plant")


def main() -> None:
    """Run one of the three programs."""
    parser = argparse.ArgumentParser(description="A plant over TCP: simulate it, explore it, control it.")
    parser.add_argument("--port", type=int, default=5020, help="where the plant listens")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("plant", help="run the simulated plant")
    explorer = commands.add_parser("explore", help="learn the plant, and export a policy")
    explorer.add_argument("--out", default="runs/slide", help="folder for everything that is measured and learned")
    explorer.add_argument("--rounds", type=int, default=4, help="rounds of planning, measuring and learning")
    commands.add_parser("control", help="control the plant").add_argument("policy", help="the exported FILE.onnx")
    options = parser.parse_args()
    if options.command == "plant":
        serve(options.port)
    elif options.command == "explore":
        explore(options.out, options.rounds, options.port)
    else:
        control(options.policy, options.port)


if __name__ == "__main__":
    main()
