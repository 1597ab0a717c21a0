"""OpenShift's policy restricted-v2, as its manifest has it: what it rejects, and what it assigns to a pod."""

import copy

from kubernetes import containers

# The users and groups of a namespace.
RANGE = range(1000660000, 1000670000)
VOLUMES = {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret"}


def rejections(pod):
    """Returns the members of a pod for which it is not created, in words."""
    security = pod.get("securityContext", {})
    found = [f"{name} {security[name]}" for name in ["runAsUser", "fsGroup"] if security.get(name, RANGE[0]) not in RANGE]
    found += [name for name in ["hostNetwork", "hostPID", "hostIPC"] if pod.get(name)]
    found += [kind for volume in pod.get("volumes", []) for kind in volume if kind != "name" and kind not in VOLUMES]
    for container in containers(pod):
        own = container.get("securityContext", {})
        rejected = [
            own.get("runAsUser", RANGE[0]) not in RANGE,
            own.get("privileged", False),
            own.get("allowPrivilegeEscalation", False),
            {"RuntimeDefault"} != {each.get("seccompProfile", {}).get("type", "RuntimeDefault") for each in [own, security]},
            not set(own.get("capabilities", {}).get("add", [])) <= {"NET_BIND_SERVICE"},
            any("hostPort" in port for port in container.get("ports", [])),
        ]
        found += [f"{container['name']}: {own}"] if any(rejected) else []
    return found


def assigned(pod):
    """Returns a pod with the user and the group that it gets."""
    pod = copy.deepcopy(pod)
    pod.setdefault("securityContext", {}).setdefault("fsGroup", RANGE[0])
    for container in containers(pod):
        container.setdefault("securityContext", {}).setdefault("runAsUser", RANGE[0])
    return pod
