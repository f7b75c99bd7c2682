"""A fused GPU kernel for the predictions of an ensemble; only `EnsemblePosterior.specialise` and `Ensemble.fused` use it.

Evaluated layer by layer, a network spends most of its time moving activations to memory and back. Here one kernel takes a tile
of inputs through all layers of a member, and activations stay on the chip. Products take half-precision numbers (11 significant
bits, as many as the TF32 products that GPUs use for single precision) and are summed in single precision. bfloat16 would be as
fast, but its 8 bits are too few for an epistemic std, which is a difference between members.

The kernel is written for the Triton backend of Pallas, which runs on NVIDIA GPUs from Ampere on. On other devices, for larger
networks, and where gradients are needed, `Network.__call__` is used. JAX plans to remove that backend, so it is imported only
where it is used.
"""

import functools
import importlib.util
import itertools
import warnings
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Float16, Float32

from sonde.models._network import Network

MOST_COLUMNS = 128  # of a block of activations; more do not fit into the registers
SMALLEST_TILE, LARGEST_TILE = 16, 128  # rows that one program of the grid takes through the network
SMALLEST_SAVING = 0.25  # share of the rows, padding included, that a smaller last tile must save
BUSY_SHARE = 0.6  # of the processors; programs of small tiles on more of them compete for the cache
MOST_WIDTH = 256  # of a hidden layer; larger networks were not tried
LARGEST_INPUT = 1e3  # normalised inputs are clipped to it; there are no data that far out
LARGEST_HALF = 65504.0  # largest number in half precision


def kernel_runs_on(array: Array) -> bool:
    """Whether the devices that hold an array can run the kernel: NVIDIA GPUs from Ampere on.

    Args:
        array: A concrete array.
    """
    if importlib.util.find_spec("jax.experimental.pallas.triton") is None:
        return False
    return all(_capability(device) >= 8.0 for device in array.devices())


def processors_of(array: Array) -> int:
    """Number of multiprocessors of the device that holds an array; 1 if it does not say.

    Args:
        array: A concrete array.
    """
    return min(int(getattr(device, "core_count", 1) or 1) for device in array.devices())


def _capability(device: jax.Device) -> float:
    """CUDA compute capability, such as 9.0; 0 for devices of other kinds."""
    capability = str(getattr(device, "compute_capability", ""))  # on other vendors' devices it is not a number
    return float(capability) if capability.replace(".", "", 1).isdigit() else 0.0


def fits(networks: Network) -> bool:
    """Whether a member's activations fit on the chip.

    Args:
        networks: Networks with any leading axes.
    """
    inputs, *hidden = (weight.shape[-2] for weight in networks.weights)
    ends = inputs, networks.weights[-1].shape[-1]
    return max(ends) <= MOST_COLUMNS and max(hidden, default=0) <= MOST_WIDTH


class FusedNetworks(eqx.Module):
    """Networks in the form that the kernel needs: half-precision weights, padded with zeros to its block sizes."""

    weights: tuple[Float16[Array, "..."], ...]
    """Padded weights of each layer [*seeds, E, inputs, outputs]."""
    biases: tuple[Float32[Array, "..."], ...]
    """Padded biases of each layer [*seeds, E, outputs]."""
    outputs: int = eqx.field(static=True)
    """Number of outputs without padding."""
    processors: int = eqx.field(static=True, default=1)
    """Number of programs that the device runs side by side."""
    interpret: bool = eqx.field(static=True, default=False)
    """Run the kernel step by step on any device, which is slow; for tests."""

    @classmethod
    def of(cls, networks: Network, processors: int = 1, interpret: bool = False) -> "FusedNetworks":
        """Convert networks.

        Args:
            networks: Networks with leading axes [*seeds, E].
            processors: See the field.
            interpret: See the field.
        """
        sizes = [networks.weights[0].shape[-2], *(weight.shape[-1] for weight in networks.weights)]
        inputs, *hidden, outputs = sizes
        padded = [_power_of_two(inputs), *(_blocks(n) for n in hidden), _power_of_two(outputs)]

        def pad(array, *shape):
            missing = [(0, 0)] * (array.ndim - len(shape))
            missing += [(0, n - have) for n, have in zip(shape, array.shape[-len(shape) :], strict=True)]
            return jnp.pad(array, missing)

        pairs = itertools.pairwise(padded)
        weights = (pad(w.astype(jnp.float16), n, m) for w, (n, m) in zip(networks.weights, pairs, strict=True))
        biases = (pad(b, m) for b, m in zip(networks.biases, padded[1:], strict=True))
        return cls(tuple(weights), tuple(biases), outputs, processors, interpret)

    def __call__(self, z: Float[Array, " inputs"]) -> Float32[Array, "E outputs"]:
        """Outputs of each member for one input; under `vmap` over inputs and seeds it is still one call of the kernel.

        Args:
            z: Normalised input.
        """
        z = jnp.clip(z, -LARGEST_INPUT, LARGEST_INPUT).astype(jnp.float16)
        return _for_rows(self, z[None])[:, 0]


def _power_of_two(size: int) -> int:
    """Smallest power of two that is at least `size` and the kernel's smallest block."""
    return max(SMALLEST_TILE, 1 << (size - 1).bit_length())


class Tiling(NamedTuple):
    """How the rows of one network are divided among programs."""

    tile: int
    """Rows of a program."""
    whole: int
    """Number of programs with that many rows."""
    last: int
    """Rows of one program more, which takes what is left; 0 if there is none."""

    @property
    def programs(self) -> int:
        """Number of programs per network."""
        return self.whole + (self.last > 0)


def tiling(rows: int, networks: int, processors: int) -> Tiling:
    """Divide rows into tiles.

    Large tiles use the weights that a program reads most often. Where they would leave most processors without work, smaller
    ones take less time.

    Args:
        rows: Rows per network.
        networks: Number of networks.
        processors: Number of programs that the device runs side by side.
    """
    tile = min(LARGEST_TILE, _power_of_two(rows))
    while tile > SMALLEST_TILE and -(-rows // (tile // 2)) * networks <= BUSY_SHARE * processors:
        tile //= 2
    whole, left = divmod(rows, tile)
    last = min(_power_of_two(left), tile) if left else 0
    # two sizes in one kernel make it slower, so they must save much
    if last and tile - last < SMALLEST_SAVING * (whole + 1) * tile:
        return Tiling(tile, whole + 1, 0)
    return Tiling(tile, whole, last)


def _blocks(width: int) -> int:
    """Width padded to whole blocks."""
    return _power_of_two(width) if width <= MOST_COLUMNS else -(-width // MOST_COLUMNS) * MOST_COLUMNS


@jax.custom_batching.custom_vmap
def _for_rows(networks: FusedNetworks, z: Float16[Array, "rows inputs"]) -> Float32[Array, "E rows outputs"]:
    """One seed: networks [E, ...]."""
    alone = jax.tree.map(lambda leaf: leaf[None], networks)
    return _for_seeds(alone, z[None])[0]


@_for_rows.def_vmap
def _(axis_size, in_batched, networks, z):
    batched, z_batched = any(jax.tree.leaves(in_batched[0])), in_batched[1]
    if not z_batched:
        z = jnp.broadcast_to(z, (axis_size, *z.shape))
    if batched:  # the batch is one of seeds, which have networks of their own
        return _for_seeds(_all_batched(networks, in_batched[0], axis_size), z), True
    output = _for_rows(networks, z.reshape(-1, z.shape[-1]))  # the batch is one of more rows for the same networks
    return jnp.moveaxis(output.reshape(output.shape[0], axis_size, -1, output.shape[-1]), 1, 0), True


@jax.custom_batching.custom_vmap
def _for_seeds(networks: FusedNetworks, z: Float16[Array, "seeds rows inputs"]) -> Float32[Array, "seeds E rows outputs"]:
    """Several seeds: networks [S, E, ...]."""
    return _kernel_call(networks, z)


@_for_seeds.def_vmap
def _(axis_size, in_batched, networks, z):
    batched, z_batched = any(jax.tree.leaves(in_batched[0])), in_batched[1]
    if not z_batched:
        z = jnp.broadcast_to(z, (axis_size, *z.shape))
    if batched:
        networks = _all_batched(networks, in_batched[0], axis_size)
        merged = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), networks)
        output = _for_seeds(merged, z.reshape(-1, *z.shape[2:]))
        return output.reshape(axis_size, -1, *output.shape[1:]), True
    num_seeds, rows = z.shape[1:3]
    output = _for_seeds(networks, jnp.moveaxis(z, 0, 1).reshape(num_seeds, axis_size * rows, -1))
    output = output.reshape(num_seeds, -1, axis_size, rows, networks.outputs)
    return jnp.moveaxis(output, 2, 0), True


def _all_batched(tree, batched, axis_size):
    repeat = lambda leaf, is_batched: leaf if is_batched else jnp.broadcast_to(leaf, (axis_size, *leaf.shape))
    return jax.tree.map(repeat, tree, batched)


def _swish(x: Array, interpret: bool) -> Array:
    """x * sigmoid(x) by tanh, for which the hardware has an instruction."""
    from jax.experimental.pallas import triton

    half = 0.5 * x
    return half + half * (jnp.tanh(half) if interpret else triton.approx_tanh(half))


def _bounded(x: Array) -> Array:
    """Clip to half precision; not by `minimum`, because the hardware's minimum of NaN and a number is the number."""
    return jnp.where(x > LARGEST_HALF, LARGEST_HALF, x)


def _kernel(rows: int, outputs: int, tiles: Tiling, interpret: bool, *refs):
    """Take one tile of rows through all layers of one member."""
    from jax.experimental import pallas as pl

    number = pl.program_id(0)
    compute = functools.partial(_tile, number * tiles.tile, (rows, outputs), interpret, refs)
    if tiles.last == 0:
        compute(tiles.tile)
    else:
        pl.when(number < tiles.whole)(functools.partial(compute, tiles.tile))
        pl.when(number == tiles.whole)(functools.partial(compute, tiles.last))


def _tile(first: Array, shape: tuple[int, int], interpret: bool, refs: tuple, tile: int) -> None:
    """Compute rows `first` and following; activations are a list of blocks of columns."""
    from jax.experimental.pallas import triton

    layers = (len(refs) - 2) // 2
    z_ref, weights, biases, out_ref = refs[0], refs[1 : 1 + layers], refs[1 + layers : -1], refs[-1]
    blocks = [z_ref[:tile]]
    for i, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        inputs, width = blocks[0].shape[1], weight.shape[1]
        columns = width if i + 1 == layers else min(width, MOST_COLUMNS)
        next_blocks = []
        for start in range(0, width, columns):
            here = slice(start, start + columns)
            total = jnp.broadcast_to(bias[here][None, :], (tile, columns))
            for j, block in enumerate(blocks):
                total += jnp.dot(block, weight[j * inputs : (j + 1) * inputs, here], preferred_element_type=jnp.float32)
            next_blocks.append(total if i + 1 == layers else _bounded(_swish(total, interpret)).astype(jnp.float16))
        blocks = next_blocks
    rows, outputs = shape
    inside = (first + jnp.arange(tile) < rows)[:, None] & (jnp.arange(blocks[0].shape[1]) < outputs)[None, :]
    triton.store(out_ref.at[:tile], blocks[0], mask=inside)


def _ignore_deprecation() -> None:
    """Ignore the warning of JAX 0.11 that the backend will be removed.

    JAX gives it when a program that contains the kernel is compiled, which is after `pallas_call` has returned, so it cannot be
    caught around the call.
    """
    warnings.filterwarnings("ignore", message="The Pallas Triton backend is deprecated", category=DeprecationWarning)


def _kernel_call(networks: FusedNetworks, z: Float16[Array, "seeds rows inputs"]) -> Float32[Array, "seeds E rows outputs"]:
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import triton

    _ignore_deprecation()
    num_seeds, rows, inputs = z.shape
    members = networks.weights[0].shape[1]
    tiles = tiling(rows, num_seeds * members, networks.processors)
    z = jnp.pad(z, ((0, 0), (0, tiles.whole * tiles.tile + tiles.last - rows), (0, networks.weights[0].shape[2] - inputs)))
    weights = [w.reshape(-1, *w.shape[2:]) for w in networks.weights]
    biases = [b.reshape(-1, b.shape[-1]) for b in networks.biases]
    columns = biases[-1].shape[1]
    all_of = lambda array: pl.BlockSpec((None, *array.shape[1:]), lambda _, i: (i, *[0] * (array.ndim - 1)))
    output = pl.pallas_call(
        functools.partial(_kernel, rows, networks.outputs, tiles, networks.interpret),
        out_shape=jax.ShapeDtypeStruct((num_seeds * members, rows, networks.outputs), jnp.float32),
        # tiles of one member run next to each other and share its weights in the cache
        grid=(tiles.programs, num_seeds * members),
        in_specs=[
            pl.BlockSpec((None, tiles.tile, z.shape[2]), lambda j, i: (i // members, j, 0)),
            *map(all_of, [*weights, *biases]),
        ],
        out_specs=pl.BlockSpec((None, tiles.tile, columns), lambda j, i: (i, j, 0)),
        # the fastest numbers of warps on an H200 (experiments/NOTES.md, "Few plans, and small steps")
        compiler_params=triton.CompilerParams(num_warps=4 if tiles.tile in (32, 64) else 8, num_stages=1),
        interpret=networks.interpret,
        name="ensemble",
    )(z, *weights, *biases)
    return output.reshape(num_seeds, members, rows, networks.outputs)
