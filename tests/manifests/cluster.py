"""A cluster for Helm to read: its kinds, and a few objects."""

import json
import threading
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KINDS = {
    "v1": ["ConfigMap", "Namespace", "PersistentVolumeClaim", "Secret", "Service", "ServiceAccount"],
    "admissionregistration.k8s.io/v1": ["MutatingWebhookConfiguration"],
    "apps/v1": ["Deployment"],
    "batch/v1": ["Job"],
    "cert-manager.io/v1": ["Certificate"],
    "monitoring.coreos.com/v1": ["PodMonitor", "PrometheusRule"],
    "networking.k8s.io/v1": ["NetworkPolicy"],
    "policy/v1": ["PodDisruptionBudget"],
}


@cache
def empty():
    """Returns a cluster where nothing is installed yet."""
    return Cluster()


class Cluster:
    def __init__(self, secrets=()):
        """Serves until the tests end."""
        groups = [{"name": each.split("/")[0], "versions": [{"groupVersion": each, "version": "v1"}]} for each in KINDS if "/" in each]
        self.found = {
            "/version": {"major": "1", "minor": "34", "gitVersion": "v1.34.0"},
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups},
            "/api/v1/namespaces/default": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}},
        }
        for group, kinds in KINDS.items():
            resources = {"kind": "APIResourceList", "groupVersion": group, "resources": [resource(kind) for kind in kinds]}
            self.found[f"/apis/{group}" if "/" in group else f"/api/{group}"] = resources
        for each in secrets:
            metadata = each["metadata"]
            self.found[f"/api/v1/namespaces/{metadata['namespace']}/secrets/{metadata['name']}"] = each
        server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{server.server_port}"

    def flags(self):
        """Lets `helm template` read this cluster, as `helm install` does."""
        return ["--dry-run=server", "--disable-openapi-validation", "--kubeconfig=/dev/null", f"--kube-apiserver={self.url}"]

    def handler(cluster):
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}
                response = cluster.found.get(self.path.partition("?")[0], missing)
                body = json.dumps(response).encode()
                self.send_response(response.get("code", 200))
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        return Handler


def resource(kind):
    name = kind.lower()
    plural = name[:-1] + "ies" if name.endswith("y") else name + "s"
    namespaced = kind not in ("Namespace", "MutatingWebhookConfiguration")
    return {"name": plural, "kind": kind, "singularName": name, "namespaced": namespaced, "verbs": ["get", "create", "patch"]}
