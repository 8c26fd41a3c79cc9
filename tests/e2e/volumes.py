"""Two claims for a cluster without a default StorageClass: folders of a node, given to uid 1000 by a pod.

The test cluster has no provisioner, and the database must outlive its pod, or killing it would prove nothing.
"""

from tests.e2e.kubectl import Kubectl, Object

# On our own node this lies in its state, which ends with it.
ROOT = "/var/lib/proctor-cluster/volumes"
CLAIMS = {"postgresql": "2Gi", "store": "8Gi"}
VOLUMES = [f"proctor-e2e-{name}" for name in CLAIMS]


def has_default_class(kubectl: Kubectl) -> bool:
    """Tell whether claims are served by the cluster itself."""
    mark = "storageclass.kubernetes.io/is-default-class"
    return any(item["metadata"].get("annotations", {}).get(mark) == "true" for item in kubectl.items("storageclasses"))


def provide(kubectl: Kubectl, namespace: str, image: str) -> None:
    """Make the folders, the volumes and the claims."""
    if not kubectl("get", "persistentvolume", *VOLUMES, "--ignore-not-found", "--output=name").strip():
        # Folders without volumes are what an interrupted run left on the node: another database's password is in them.
        remove(kubectl, image)
    _in_the_node(
        kubectl, image, "mkdir -p /host/postgresql /host/store && chown 1000:1000 /host/postgresql /host/store"
    )
    there = Kubectl(kubeconfig=kubectl.kubeconfig, namespace=namespace)
    for name, size in CLAIMS.items():
        shared = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
        there.apply(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"proctor-e2e-{name}"},
                "spec": {
                    **shared,
                    "capacity": {"storage": size},
                    "persistentVolumeReclaimPolicy": "Retain",
                    "hostPath": {"path": f"{ROOT}/{name}"},
                    "claimRef": {"namespace": namespace, "name": f"e2e-{name}"},
                },
            },
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {"name": f"e2e-{name}"},
                "spec": {**shared, "volumeName": f"proctor-e2e-{name}", "resources": {"requests": {"storage": size}}},
            },
        )


def remove(kubectl: Kubectl, image: str) -> None:
    """Remove volumes and folders; their claims are gone with the namespace."""
    kubectl("delete", "persistentvolume", "--ignore-not-found", *VOLUMES)
    _in_the_node(kubectl, image, "rm -rf /host/postgresql /host/store")


def _in_the_node(kubectl: Kubectl, image: str, script: str) -> None:
    """Run a script as root with the folder at /host, in a pod outside our namespaces."""
    pod: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "proctor-e2e-folders", "namespace": "default"},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [
                {
                    "name": "folders",
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["bash", "-euc", script],
                    "securityContext": {"runAsUser": 0},
                    "volumeMounts": [{"name": "host", "mountPath": "/host"}],
                }
            ],
            "volumes": [{"name": "host", "hostPath": {"path": ROOT, "type": "DirectoryOrCreate"}}],
        },
    }
    there = Kubectl(kubeconfig=kubectl.kubeconfig)
    there("delete", "pod", "proctor-e2e-folders", "--ignore-not-found", "--wait=true")
    there.apply(pod)
    there("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/proctor-e2e-folders", "--timeout=60s")
    there("delete", "pod", "proctor-e2e-folders", "--wait=true")
