"""Values that users give, one combination for each thing that the chart decides by them."""

from typing import Any

VALUES: dict[str, dict[str, Any]] = {
    "none": {},
    "two replicas": {"replicas": 2, "priorityClassName": "system-cluster-critical"},
    "some namespaces": {"watchNamespaces": ["models", "research"], "uninstall": {"guard": "Drain"}},
    "every setting": {
        "settings": {
            "nodePorts": "30000-30085,31000-31010",
            "hostPorts": "20000-20999",
            "reuseDelaySeconds": 0,
            "evidenceNodeRemoved": "Accept",
            "allowHostPath": True,
            "statusPagePort": 8082,
            "workers": 16,
            "resyncSeconds": 120.5,
            "requestTimeoutSeconds": 5,
            "backoffSeconds": 0.25,
            "maxBackoffSeconds": 30,
            "stopSeconds": 2,
            "leaderLeaseSeconds": 30,
            "leaderRenewDeadlineSeconds": 20,
            "leaderRetrySeconds": 4,
            "controlTimeoutSeconds": 1,
            "logFormat": "console",
            "logLevel": "DEBUG",
        }
    },
    "everything": {
        "replicas": 3,
        "image": {"repository": "registry.example.com/operator", "tag": "1.2.3", "pullPolicy": "Always"},
        "serverImage": {"repository": "registry.example.com/server", "tag": "1.2.3-cuda"},
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "infra", "operator": "Exists", "effect": "NoSchedule"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "podLabels": {"team": "ml"},
        "podAnnotations": {"example.com/note": "yes: a colon"},
        "networkPolicy": {
            "operator": {
                "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
            },
            "backends": [{"namespace": "models"}, {"namespace": "research", "from": [{"podSelector": {}}]}],
        },
        "admissionPolicies": {"enabled": True, "exemptUsers": ["admin"], "exemptGroups": ["system:masters"]},
        "monitoring": {"podMonitors": True, "rules": True, "dashboards": True, "labels": {"release": "prometheus"}},
        "uninstall": {"guard": "Drain", "timeoutSeconds": 600},
    },
    "no extras": {
        "networkPolicy": {"operator": {"enabled": False}},
        "tests": {"enabled": False},
        "uninstall": {"guard": "Off"},
    },
    "another name": {"fullnameOverride": "models-of-team-a", "watchNamespaces": ["team-a"]},
}
