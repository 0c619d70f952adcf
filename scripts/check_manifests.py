"""Render what is in k8s/ and check every object. Run by scripts/check-manifests.

Three kinds of checks: the schema of each kind, unknown fields refused; rules for every pod; and what must agree with
what: settings with names in config/default.toml, topics with their settings, users with scripts/kafka-rights, grace
periods, ports, selectors and references with what they refer to.
"""

import argparse
import copy
import functools
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jsonschema
import kubernetes_validate
import yaml

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
SIZES = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
# Sections whose names the user chooses.
FREE = ("kafka.properties", "model.prices")
WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "Job")


def seconds(text):
    number, unit = re.fullmatch(r"([\d.]+)(ms|s|m|h|d)", text).groups()
    return float(number) * UNITS[unit]


def size(text):
    number, unit = re.fullmatch(r"(\d+)\s*(KiB|MiB|GiB|)", str(text)).groups()
    return int(number) * SIZES[unit]


def flat(table, at=""):
    """A tree of settings as dotted names with values."""
    out = {}
    for name, value in table.items():
        path = f"{at}{name}"
        out.update(flat(value, f"{path}.") if isinstance(value, dict) else {path: value})
    return out


def walk(node):
    """Every mapping in a document."""
    if isinstance(node, dict):
        yield node
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from walk(child)


# ---------------------------------------------------------------- rendering


def kustomizations(root):
    """Every folder with a kustomization, and whether it is a component."""
    for file in sorted(root.glob("k8s/**/kustomization.yaml")):
        yield file.parent, yaml.load(file.read_text(), Loader)["kind"] == "Component"


def render(kustomize, folder):
    run = subprocess.run([kustomize, "build", folder], capture_output=True, text=True)
    if run.returncode or run.stderr.strip():  # warnings, such as of deprecated fields, are faults too
        return None, run.stderr.strip()
    return list(yaml.load_all(run.stdout, Loader)), None


def render_component(kustomize, root, folder):
    """A component is nothing alone: here it is on the base, after the component of the folder above, if any."""
    above = [folder.parent] if (folder.parent / "kustomization.yaml").exists() else []
    with tempfile.TemporaryDirectory() as scratch:
        # Kustomize takes relative paths only.
        near = {
            path: os.path.relpath(path.resolve(), Path(scratch).resolve())
            for path in [root / "k8s/base", *above, folder]
        }
        stack = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [near[root / "k8s/base"]],
            "components": [near[path] for path in [*above, folder]],
        }
        (Path(scratch) / "kustomization.yaml").write_text(yaml.safe_dump(stack))
        return render(kustomize, scratch)


# ---------------------------------------------------------------- schemas


def closed(schema):
    """The schema with every object closed that lists its fields and says nothing of others."""
    if isinstance(schema, dict):
        opened = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
        schema = {key: closed(value) for key, value in schema.items()}
        if isinstance(schema.get("properties"), dict) and schema.get("type") == "object" and not opened:
            schema["additionalProperties"] = False
        if schema.get("x-kubernetes-int-or-string"):
            schema.pop("type", None)
        return schema
    return [closed(item) for item in schema] if isinstance(schema, list) else schema


class Schemas:
    """What an object of a kind may look like."""

    def __init__(self, folder, kubernetes):
        self.kubernetes = kubernetes
        self.files = {}
        self.validators = {}
        for file in sorted(folder.glob("*.yaml")):
            text = file.read_text()
            group = re.search(r"^  group: (\S+)", text, re.M).group(1)
            kind = re.search(r"^    kind: (\S+)", text, re.M).group(1)
            self.files[group, kind] = file

    def custom(self, group, version, kind):
        key = group, version, kind
        if key not in self.validators:
            definition = yaml.load(self.files[group, kind].read_text(), Loader)
            schemas = {v["name"]: v["schema"]["openAPIV3Schema"] for v in definition["spec"]["versions"] if v["served"]}
            schema = closed(schemas[version]) if version in schemas else False
            if schema:
                # The definition leaves these to the API server.
                schema["properties"]["metadata"] = {"type": "object"}
            self.validators[key] = jsonschema.Draft202012Validator(schema)
        return self.validators[key]

    def faults(self, document):
        group, _, version = document["apiVersion"].rpartition("/")
        if (group, document["kind"]) in self.files:
            for error in self.custom(group, version, document["kind"]).iter_errors(document):
                yield f"{'.'.join(map(str, error.path)) or 'apiVersion'}: {error.message[:300]}"
            return
        try:
            kubernetes_validate.validate(document, self.kubernetes, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{'.'.join(map(str, error.path))}: {error.message[:300]}"
        except kubernetes_validate.SchemaNotFoundError:
            yield f"no schema for {document['apiVersion']} {document['kind']}"


# ---------------------------------------------------------------- rules


class Rendering:
    """The objects of one kustomization."""

    def __init__(self, documents, project):
        self.documents = documents
        self.project = project

    def of(self, *kinds):
        return [d for d in self.documents if d["kind"] in kinds]

    def named(self, kind, name):
        return next((d for d in self.of(kind) if d["metadata"]["name"] == name), None)

    def templates(self):
        return [(d, d["spec"]["template"]) for d in self.of(*WORKLOADS)]

    def is_starling(self, document):
        return document["metadata"].get("labels", {}).get("app.kubernetes.io/name") == "starling"

    def settings(self, document):
        """The settings that a workload starts with, and what is wrong with them."""
        spec = document["spec"]["template"]["spec"]
        container = spec["containers"][0]
        env = {e["name"]: e.get("value", "") for e in container.get("env", [])}
        mounts = {m["mountPath"]: m["name"] for m in container.get("volumeMounts", [])}
        volumes = {v["name"]: v for v in spec.get("volumes", [])}
        values, faults = dict(self.project.defaults), []

        def known(name):
            return name in self.project.defaults or name.startswith(tuple(f"{section}." for section in FREE))

        for path in filter(None, env.get("STARLING_CONFIG", "").split(":")):
            folder, _, file = path.rpartition("/")
            source = volumes.get(mounts.get(folder), {}).get("configMap", {}).get("name")
            text = ((self.named("ConfigMap", source) or {}).get("data") or {}).get(file)
            if text is None:
                faults.append(f"STARLING_CONFIG names {path}, which no mounted ConfigMap has")
                continue
            try:
                own = flat(tomllib.loads(text))
            except tomllib.TOMLDecodeError as error:
                faults.append(f"{file}: {error}")
                continue
            faults += [f"{file}: {name} is no setting of config/default.toml" for name in own if not known(name)]
            values.update(own)
        for name, value in env.items():
            if name.startswith("STARLING__"):
                setting = name[len("STARLING__") :].lower().replace("__", ".")
                if not known(setting):
                    faults.append(f"{name} is no setting of config/default.toml")
                values[setting] = value
                if setting.endswith("_file") and not any(value.startswith(f"{m}/") for m in mounts):
                    faults.append(f"{name} names {value}, where nothing is mounted")
        return values, faults


def pods(rendering):
    """Every container is bounded, named by a version, and may do nothing."""
    for document, template in rendering.templates():
        spec = template["spec"]
        pod = spec.get("securityContext", {})
        wanted = {
            "runAsNonRoot is true": pod.get("runAsNonRoot") is True,
            "runAsUser is a user": pod.get("runAsUser", 0) > 0,
            "seccompProfile is RuntimeDefault": pod.get("seccompProfile", {}).get("type") == "RuntimeDefault",
            "no token is mounted": spec.get("automountServiceAccountToken") is False,
            "no service links": spec.get("enableServiceLinks") is False,
            "it has an account of its own": rendering.named("ServiceAccount", spec.get("serviceAccountName")),
            "nothing of the host": not any(spec.get(f"host{x}") for x in ("Network", "PID", "IPC")),
        }
        if rendering.is_starling(document):
            wanted["runAsUser is 10001"] = pod.get("runAsUser") == 10001
        for volume in spec.get("volumes", []):
            wanted[f"volume {volume['name']} is not of the host"] = "hostPath" not in volume
            source = volume.get("configMap", {}).get("name")
            wanted[f"ConfigMap {source} is there"] = not source or rendering.named("ConfigMap", source)
        claims = [c["metadata"]["name"] for c in document["spec"].get("volumeClaimTemplates", [])]
        volumes = {v["name"] for v in spec.get("volumes", [])} | set(claims)
        for container in spec.get("initContainers", []) + spec["containers"]:
            name, may, bounds = container["name"], container.get("securityContext", {}), container.get("resources", {})
            image = container["image"]
            tag = image.rpartition("/")[2].partition(":")[2]
            replaceable = image == "starling" and not rendering.project.is_overlay
            mounted = {m["name"] for m in container.get("volumeMounts", [])}
            ports = {p.get("name") for p in container.get("ports", [])}
            wanted |= {
                f"{name}: the image {image} has a version": replaceable
                or "@sha256:" in image
                or tag not in ("", "latest"),
                f"{name}: it requests processors and memory": {"cpu", "memory"} <= bounds.get("requests", {}).keys(),
                f"{name}: processors and memory are limited": {"cpu", "memory"} <= bounds.get("limits", {}).keys(),
                f"{name}: no privilege escalation": may.get("allowPrivilegeEscalation") is False,
                f"{name}: the root file system is read-only": may.get("readOnlyRootFilesystem") is True,
                f"{name}: all capabilities are dropped": may.get("capabilities") == {"drop": ["ALL"]},
                f"{name}: it is not privileged": not may.get("privileged"),
                f"{name}: what it mounts is there": mounted <= volumes,
            }
            if document["kind"] != "Job":
                asked = {"readinessProbe", "livenessProbe"} <= container.keys()
                wanted[f"{name}: it is asked whether it is ready and alive"] = asked
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                handler = container.get(probe, {})
                port = handler.get("httpGet", handler.get("tcpSocket", {})).get("port")
                wanted[f"{name}: the port of its {probe} is there"] = port is None or port in ports
        yield from (f"{ident(document)}: not so: {rule}" for rule, holds in wanted.items() if not holds)


def fits(want, have):
    return want.items() <= have.items()


def selectors(rendering):
    """What selects pods selects some, and a workload its own."""
    labels = [(d, t["metadata"]["labels"]) for d, t in rendering.templates()]
    for document, have in labels:
        want = document["spec"].get("selector", {}).get("matchLabels", {})
        if not fits(want, have):
            yield f"{ident(document)}: the selector does not fit the template's labels"
        others = [other for other, has in labels if other is not document and want and fits(want, has)]
        yield from (f"{ident(document)}: selects the pods of {ident(other)} too" for other in others)
        for spread in document["spec"]["template"]["spec"].get("topologySpreadConstraints", []):
            if not fits(spread["labelSelector"]["matchLabels"], have):
                yield f"{ident(document)}: spreads other pods than its own"
    for document in rendering.of("Service", "PodDisruptionBudget", "NetworkPolicy", "PodMonitor", "ServiceMonitor"):
        spec = document["spec"]
        want = spec.get("podSelector", spec.get("selector", {}))
        want = want.get("matchLabels", want if document["kind"] == "Service" else {})
        chosen = [d for d, have in labels if fits(want, have)]
        if want and not chosen:
            yield f"{ident(document)}: selects no pod"
        containers = [c for d in chosen for c in d["spec"]["template"]["spec"]["containers"]]
        ports = {p.get("name") for c in containers for p in c.get("ports", [])}
        asked = [p.get("targetPort", p["port"]) for p in spec.get("ports", [])]
        asked += [e.get("port") for e in spec.get("podMetricsEndpoints", [])]
        asked += [p["port"] for rule in spec.get("ingress", []) for p in rule.get("ports", [])]
        yield from (
            f"{ident(document)}: no pod that it selects has a port {port}"
            for port in asked
            if isinstance(port, str) and port not in ports
        )


def settings(rendering):
    """Settings exist, and agree with what Kubernetes is told."""
    for document, template in rendering.templates():
        if not rendering.is_starling(document):
            continue
        values, faults = rendering.settings(document)
        yield from (f"{ident(document)}: {fault}" for fault in faults)
        if document["kind"] != "Deployment":
            continue
        spec = template["spec"]
        container = spec["containers"][0]
        grace, call = seconds(values["processor.grace"]), seconds(values["model.timeout"])
        if grace < call:
            yield f"{ident(document)}: processor.grace ({grace:g} s) is shorter than model.timeout ({call:g} s)"
        if spec.get("terminationGracePeriodSeconds", 30) < grace + 20:
            yield f"{ident(document)}: terminationGracePeriodSeconds leaves less than 20 s after processor.grace"
        probe = container["startupProbe"]
        patience = probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)
        if patience <= seconds(values["kafka.connect_timeout"]):
            yield f"{ident(document)}: the startup probe gives up before kafka.connect_timeout does"
        ports = {str(p["containerPort"]) for p in container["ports"] if p.get("name") == "http"}
        if values["http.listen"].rpartition(":")[2] not in ports:
            yield f"{ident(document)}: http.listen is {values['http.listen']}, the port named http another"


def scaling(rendering):
    """A ScaledObject scales something, nobody else does, and its threshold is a pod's slots."""
    for document in rendering.of("ScaledObject"):
        spec = document["spec"]
        target = rendering.named("Deployment", spec["scaleTargetRef"]["name"])
        if target is None:
            yield f"{ident(document)}: there is no Deployment {spec['scaleTargetRef']['name']}"
            continue
        if "replicas" in target["spec"]:
            yield f"{ident(target)}: names replicas, which its ScaledObject would be undone by"
        values, _ = rendering.settings(target)
        role = target["metadata"]["labels"]["app.kubernetes.io/component"]
        inbox = f"{values['topics.prefix']}.{role}"
        for trigger in spec["triggers"]:
            meta = trigger["metadata"]
            if (meta["topic"], meta["consumerGroup"]) != (inbox, inbox):
                yield f"{ident(document)}: topic and group of {role} are both {inbox}"
            slots = values[f"processor.slots.{role}"]
            if meta["lagThreshold"] != str(slots):
                yield f"{ident(document)}: lagThreshold is not processor.slots.{role} ({slots})"
            login = trigger.get("authenticationRef", {}).get("name")
            if login and not rendering.named("TriggerAuthentication", login):
                yield f"{ident(document)}: there is no TriggerAuthentication {login}"
        if spec["maxReplicaCount"] > values[f"topics.partitions.{role}"]:
            yield f"{ident(document)}: more pods than {inbox} has partitions"


def topics(rendering):
    """KafkaTopics are what `starling topics create` would make (crates/runtime/src/topics.rs)."""
    found = {d["metadata"]["name"]: d["spec"] for d in rendering.of("KafkaTopic")}
    planner = rendering.named("Deployment", "starling-planner")
    if not found or planner is None:
        return
    values, _ = rendering.settings(planner)
    inboxes = ["intents", "coordinator", "planner", "worker", "critic", "tool"]
    pools = dict(pool.partition(":")[::2] for pool in values["topics.pools"])
    inboxes += [f"worker.{pool}" for pool in pools]
    for name in [*inboxes, "outcomes", "progress", "content", "dlq", "control", "fleet", "state"]:
        spec = found.pop(f"{values['topics.prefix']}.{name}", None)
        if spec is None:
            yield f"KafkaTopic for {name}: missing"
            continue
        inherits = {"state": "coordinator"}.get(name, name.partition(".")[0])
        own = pools.get(name.removeprefix("worker.")) if name.startswith("worker.") else None
        partitions = int(own) if own else values.get(f"topics.partitions.{inherits}", 1)
        retention = "inboxes" if name in inboxes else name
        kept = -1 if name == "state" else int(1000 * seconds(values[f"topics.retention.{retention}"]))
        config = {
            "cleanup.policy": "compact,delete" if name == "control" else "delete",
            "max.message.bytes": size(values["topics.max_message"]),
            "min.insync.replicas": 2,
            "retention.bytes": -1,
            "retention.ms": kept,
            "unclean.leader.election.enable": False,
        }
        if name in ("fleet", "progress"):
            config["segment.ms"] = max(kept // 2, 60_000)
        if spec["partitions"] != partitions:
            yield f"KafkaTopic for {name}: {spec['partitions']} partitions, by the settings {partitions}"
        if spec["config"] != config:
            wrong = sorted(k for k in spec["config"].keys() | config.keys() if spec["config"].get(k) != config.get(k))
            yield f"KafkaTopic for {name}: not as the settings say: {', '.join(wrong)}"
    yield from (f"KafkaTopic {name}: Starling has no such topic" for name in found)


# By whose rights in scripts/kafka-rights a KafkaUser goes.
USERS = {
    "starling-planner": "planner",
    "starling-worker": "worker",
    "starling-critic": "critic",
    "starling-client": "cli",
    "starling-operator": "operator",
}


def rights(rendering):
    """KafkaUsers may do what scripts/kafka-rights grants, and nothing else."""
    if not rendering.of("KafkaUser"):
        return
    for name, service in USERS.items():
        user = rendering.named("KafkaUser", name)
        if user is None:
            yield f"KafkaUser/{name}: missing"
            continue
        wanted, found = {}, {}
        for line in rendering.project.rights(service).splitlines():
            kind, resource, operations = line.split()
            pattern = "prefix" if resource.endswith("*") else "literal"
            wanted.setdefault((kind, resource.removesuffix("*"), pattern), set()).update(operations.split(","))
        for rule in user["spec"]["authorization"]["acls"]:
            resource = rule["resource"]
            key = resource["type"], resource["name"], resource["patternType"]
            found.setdefault(key, set()).update(rule["operations"])
        for key in sorted(wanted.keys() | found.keys()):
            for what, more, less in (("lacks", wanted, found), ("must not have", found, wanted)):
                operations = more.get(key, set()) - less.get(key, set())
                if operations:
                    yield f"{ident(user)}: {what} {', '.join(sorted(operations))} on {' '.join(key)}"


def secrets(rendering):
    """Nothing secret is written down, and with Strimzi each Secret of a user has its user."""
    users = {d["metadata"]["name"] for d in rendering.of("KafkaUser")}
    for document in rendering.of("Secret"):
        yield f"{ident(document)}: a Secret must not be in the repository"
    for document, template in rendering.templates():
        for volume in template["spec"].get("volumes", []):
            name = volume.get("secret", {}).get("secretName", "")
            if users and volume["name"] == "kafka-user" and name not in users:
                yield f"{ident(document)}: there is no KafkaUser {name}"


def labels(rendering):
    """Everything says whose it is."""
    for document in rendering.documents:
        have = document["metadata"].get("labels", {})
        if rendering.project.is_overlay and "app.kubernetes.io/part-of" not in have:
            yield f"{ident(document)}: has no label app.kubernetes.io/part-of"
        if rendering.project.is_overlay and document["kind"] != "Namespace" and "namespace" not in document["metadata"]:
            yield f"{ident(document)}: has no namespace"


RULES = (pods, selectors, settings, scaling, topics, rights, secrets, labels)


def ident(document):
    return f"{document['kind']}/{document['metadata']['name']}"


class Project:
    """What the rest of the repository says."""

    def __init__(self, root):
        self.defaults = flat(tomllib.loads((root / "config/default.toml").read_text()))
        self.script = root / "scripts/kafka-rights"
        self.is_overlay = False

    @functools.cache
    def rights(self, service):
        """What a service needs to be allowed in Kafka, a line each."""
        show = [self.script, "show", service, "--prefix", self.defaults["topics.prefix"]]
        return subprocess.run(show, capture_output=True, text=True, check=True).stdout

    def with_overlay(self, is_overlay):
        project = copy.copy(self)
        project.is_overlay = is_overlay
        return project


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kustomize", required=True)
    parser.add_argument("--crds", type=Path, required=True)
    parser.add_argument("--kubernetes", required=True)
    parser.add_argument("root", type=Path)
    args = parser.parse_args()
    root = args.root.resolve()
    project, schemas = Project(root), Schemas(args.crds, args.kubernetes)

    folders = list(kustomizations(root))
    with ThreadPoolExecutor() as pool:
        renderings = list(
            pool.map(
                lambda f: render_component(args.kustomize, root, f[0]) if f[1] else render(args.kustomize, f[0]),
                folders,
            )
        )
    faults, checked, seen = [], 0, {}
    for (folder, _), (documents, error) in zip(folders, renderings, strict=True):
        where = folder.relative_to(root)
        if error:
            faults.append(f"{where}: cannot be rendered: {error}")
            continue
        overlay = folder.parent.name == "overlays"
        rendering = Rendering(documents, project.with_overlay(overlay))
        for document in documents:
            checked += 1
            key = yaml.safe_dump(document)  # the base comes again with each component
            if key not in seen:
                seen[key] = list(schemas.faults(document))
                faults += [f"{where}: {ident(document)}: {fault}" for fault in seen[key]]
        for rule in RULES:
            faults += [f"{where}: {fault}" for fault in rule(rendering)]
    if not checked:
        faults.append("k8s: nothing to check")
    places = {}  # a fault of the base shows in everything that is built on it
    for fault in faults:
        where, _, what = fault.partition(": ")
        places.setdefault(what, []).append(where)
    for what, where in places.items():
        more = len(set(where)) - 1
        print(f"check-manifests: {where[0]}{f' (and {more} more)' if more else ''}: {what}", file=sys.stderr)
    if faults:
        sys.exit(1)
    print(f"{checked} objects of {len(folders)} kustomizations are in order")


if __name__ == "__main__":
    main()
