"""FMUs for tests: a pendulum whose slave is Python (by pythonfmu), and a cart in C, of FMI 2 or 3, that fails on request."""

import importlib
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

PENDULUM = '''
import math

from pythonfmu import Boolean, DefaultExperiment, Fmi2Causality, Fmi2Slave, Fmi2Variability, Real


class Pendulum(Fmi2Slave):
    """A damped pendulum, solved by Runge and Kutta's method in ten steps of each communication step."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.torque, self.speed, self.gravity, self.angle0, self.locked = 0.0, 0.0, 9.81, 0.5, False
        self.angle = self.angle0
        self.default_experiment = DefaultExperiment(step_size=0.05)
        self.register_variable(Real("torque", causality=Fmi2Causality.input))
        self.register_variable(Real("angle", causality=Fmi2Causality.output))
        self.register_variable(Real("speed", causality=Fmi2Causality.output))
        for name in ("gravity", "angle0"):
            self.register_variable(Real(name, causality=Fmi2Causality.parameter, variability=Fmi2Variability.tunable))
        self.register_variable(Boolean("locked", causality=Fmi2Causality.parameter, variability=Fmi2Variability.tunable))

    def exit_initialization_mode(self):
        self.angle = self.angle0

    def slope(self, angle, speed):
        return speed, -self.gravity * math.sin(angle) - 0.3 * speed + self.torque

    def do_step(self, current_time, step_size):
        if self.locked:
            return False
        h = step_size / 10
        for _ in range(10):
            k1 = self.slope(self.angle, self.speed)
            k2 = self.slope(self.angle + h / 2 * k1[0], self.speed + h / 2 * k1[1])
            k3 = self.slope(self.angle + h / 2 * k2[0], self.speed + h / 2 * k2[1])
            k4 = self.slope(self.angle + h * k3[0], self.speed + h * k3[1])
            self.angle += h / 6 * (k1[0] + 2 * k2[0] + 2 * k3[0] + k4[0])
            self.speed += h / 6 * (k1[1] + 2 * k2[1] + 2 * k3[1] + k4[1])
        return True
'''
IN_C = r"""
#include <math.h>
#include <stdlib.h>
#ifdef FMI3
#include "fmi3FunctionTypes.h"
#define S(name) fmi3##name
typedef fmi3Float64 Number;
#else
#include "fmi2FunctionTypes.h"
#define S(name) fmi2##name
typedef fmi2Real Number;
#endif

/* variables: 0 force (input), 1 position (output), 2 speed (output), 3 mass (parameter), 4 fault (parameter) */
typedef struct { double v[5]; int terminated; double reached; } Cart;
static int instances = 0;
enum { NONE, ENDS, STOPS_WITHIN, FAILS, NOT_A_NUMBER, NO_RESET };

static void begin(Cart *c) {
    c->v[0] = c->v[1] = c->v[2] = c->v[4] = 0; c->v[3] = 1; c->terminated = 0;
}
static Cart *make(void) {
#ifdef ONCE
    if (instances) return NULL;
#endif
    instances++;
    Cart *c = malloc(sizeof *c); begin(c); return c;
}
static S(Status) restart(Cart *c) {
    if ((int)c->v[4] == NO_RESET) return S(Error);
    begin(c); return S(OK);
}
/* the exact solution of a mass that is pushed without friction */
static S(Status) advance(Cart *c, double t, double h) {
    int fault = t + h > 0.25 ? (int)c->v[4] : NONE;
    if (fault == FAILS) return S(Error);
    if (fault == STOPS_WITHIN) h /= 2;
    double a = c->v[0] / c->v[3];
    c->v[1] += h * c->v[2] + h * h / 2 * a; c->v[2] += h * a;
    if (fault == NOT_A_NUMBER) c->v[1] = NAN;
    c->terminated = fault == ENDS || fault == STOPS_WITHIN; c->reached = t + h;
    return S(OK);
}

#ifdef FMI3
fmi3Instance fmi3InstantiateCoSimulation(fmi3String n, fmi3String g, fmi3String r, fmi3Boolean v, fmi3Boolean l, fmi3Boolean e,
    fmi3Boolean a, const fmi3ValueReference *x, size_t k, fmi3InstanceEnvironment i, fmi3LogMessageCallback m,
    fmi3IntermediateUpdateCallback u) { return make(); }
void fmi3FreeInstance(fmi3Instance i) { instances--; free(i); }
fmi3Status fmi3EnterInitializationMode(fmi3Instance i, fmi3Boolean d, Number t, Number s, fmi3Boolean e, Number f) {
    return fmi3OK; }
fmi3Status fmi3ExitInitializationMode(fmi3Instance i) { return fmi3OK; }
fmi3Status fmi3Reset(fmi3Instance i) { return restart(i); }
fmi3Status fmi3Terminate(fmi3Instance i) { return fmi3OK; }
fmi3Status fmi3GetFloat64(fmi3Instance i, const fmi3ValueReference r[], size_t n, Number v[], size_t m) {
    for (size_t k = 0; k < n; k++) v[k] = ((Cart *)i)->v[r[k]]; return fmi3OK; }
fmi3Status fmi3SetFloat64(fmi3Instance i, const fmi3ValueReference r[], size_t n, const Number v[], size_t m) {
    for (size_t k = 0; k < n; k++) ((Cart *)i)->v[r[k]] = v[k]; return fmi3OK; }
fmi3Status fmi3DoStep(fmi3Instance i, Number t, Number h, fmi3Boolean b, fmi3Boolean *e, fmi3Boolean *end, fmi3Boolean *early,
    Number *reached) {
    Cart *c = i; fmi3Status s = advance(c, t, h); *e = 0; *end = c->terminated; *early = 0; *reached = c->reached; return s; }
#else
const char *fmi2GetTypesPlatform(void) { return "default"; }
const char *fmi2GetVersion(void) { return "2.0"; }
fmi2Component fmi2Instantiate(fmi2String n, fmi2Type k, fmi2String g, fmi2String r, const fmi2CallbackFunctions *f,
    fmi2Boolean v, fmi2Boolean l) { return make(); }
void fmi2FreeInstance(fmi2Component i) { instances--; free(i); }
fmi2Status fmi2SetupExperiment(fmi2Component i, fmi2Boolean d, Number t, Number s, fmi2Boolean e, Number f) { return fmi2OK; }
fmi2Status fmi2EnterInitializationMode(fmi2Component i) { return fmi2OK; }
fmi2Status fmi2ExitInitializationMode(fmi2Component i) { return fmi2OK; }
fmi2Status fmi2Reset(fmi2Component i) { return restart(i); }
fmi2Status fmi2Terminate(fmi2Component i) { return fmi2OK; }
fmi2Status fmi2GetReal(fmi2Component i, const fmi2ValueReference r[], size_t n, Number v[]) {
    for (size_t k = 0; k < n; k++) v[k] = ((Cart *)i)->v[r[k]]; return fmi2OK; }
fmi2Status fmi2SetReal(fmi2Component i, const fmi2ValueReference r[], size_t n, const Number v[]) {
    for (size_t k = 0; k < n; k++) ((Cart *)i)->v[r[k]] = v[k]; return fmi2OK; }
fmi2Status fmi2DoStep(fmi2Component i, Number t, Number h, fmi2Boolean b) {
    fmi2Status s = advance(i, t, h); return s == fmi2OK && ((Cart *)i)->terminated ? fmi2Discard : s; }
fmi2Status fmi2GetBooleanStatus(fmi2Component i, const fmi2StatusKind k, fmi2Boolean *v) {
    *v = ((Cart *)i)->terminated; return fmi2OK; }
fmi2Status fmi2GetRealStatus(fmi2Component i, const fmi2StatusKind k, Number *v) { *v = ((Cart *)i)->reached; return fmi2OK; }
#endif
"""
VARIABLES = (
    ("force", "input", "continuous", 'start="0" min="-2" max="2"'),
    ("position", "output", "continuous", ""),
    ("speed", "output", "continuous", ""),
    ("mass", "parameter", "fixed", 'start="1"'),
    ("fault", "parameter", "fixed", 'start="0"'),
)


def pendulum(folder: Path) -> Path:
    """A pendulum by pythonfmu.

    Args:
        folder: Where to build it.
    """
    (folder / "pendulum.py").write_text(PENDULUM)
    build_fmu(folder, "pendulum.py")
    return folder / "Pendulum.fmu"


def build_fmu(folder: Path, file: str) -> None:
    """Make an FMU of a slave in Python, in a process of its own: it imports the file.

    Args:
        folder: Where the file is, and the FMU will be.
        file: Name of the file.
    """
    build = [sys.executable, "-m", "pythonfmu", "build", "-f", file, "-d", "."]
    subprocess.run(build, cwd=folder, check=True, capture_output=True)


def described(fmu: Path, out: Path, *changes: tuple[str, str]) -> Path:
    """A copy of an FMU whose description differs.

    Args:
        fmu: The FMU.
        out: The copy.
        changes: Regular expressions, and what replaces the first place that they match.
    """
    with zipfile.ZipFile(fmu) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            for pattern, replacement in changes if name == "modelDescription.xml" else ():
                text, count = re.subn(pattern, replacement, content.decode(), count=1)
                assert count == 1, pattern
                content = text.encode()
            new.writestr(name, content)
    return out


def cart(folder: Path, version: int = 2, once: bool = False) -> Path:
    """A pushed mass in C, compiled with the headers of the standard that FMPy brings.

    Args:
        folder: Where to build it.
        version: Version of FMI, 2 or 3.
        once: Whether it can be instantiated only once per process, and says so.
    """
    import fmpy

    place = folder / f"cart{version}{'once' * once}"
    library = (
        place / "binaries" / (fmpy.platform if version == 2 else fmpy.platform_tuple) / f"cart{fmpy.sharedLibraryExtension}"
    )
    library.parent.mkdir(parents=True)
    kind = getattr(importlib.import_module(f"fmpy.fmi{version}"), f"FMU{version}Slave")
    missing = [name for name in dir(kind) if name.startswith(f"fmi{version}") and f"{name}(" not in IN_C]
    # FMPy looks up every function of the standard; those that nothing calls here only fail
    (place / "cart.c").write_text(IN_C + "\n".join(f"int {name}(void) {{ return 3; }}" for name in missing))
    headers = Path(fmpy.__file__).parent / "c-code"
    flags = ["-DFMI3"] * (version == 3) + ["-DONCE"] * once
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-O1", *flags, f"-I{headers}", "cart.c", "-lm", "-o", library], cwd=place, check=True
    )
    (place / "modelDescription.xml").write_text(_description(version, once))
    return Path(shutil.make_archive(str(place), "zip", place)).rename(place.with_suffix(".fmu"))


def _description(version: int, once: bool) -> str:
    token = "guid" if version == 2 else "instantiationToken"
    variables, outputs = "", ""
    for number, (name, causality, variability, more) in enumerate(VARIABLES):
        facts = f'name="{name}" valueReference="{number}" causality="{causality}" variability="{variability}"'
        two = f"<ScalarVariable {facts}><Real {more}/></ScalarVariable>"
        variables += two if version == 2 else f"<Float64 {facts} {more}/>"
        if causality == "output":
            outputs += f'<Unknown index="{number + 1}"/>' if version == 2 else f'<Output valueReference="{number}"/>'
    outputs = f"<Outputs>{outputs}</Outputs>" if version == 2 else outputs
    flag = 'canBeInstantiatedOnlyOncePerProcess="true"' * once
    return (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<fmiModelDescription fmiVersion="{version}.0" modelName="cart" {token}="1">'
        f'<CoSimulation modelIdentifier="cart" canHandleVariableCommunicationStepSize="true" {flag}/>'
        f'<DefaultExperiment stepSize="0.1"/><ModelVariables>{variables}</ModelVariables>'
        f"<ModelStructure>{outputs}</ModelStructure></fmiModelDescription>"
    )
