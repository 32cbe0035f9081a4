{{- define "rules.cluster" -}}
- apiGroups: [modelbackend.dev]
  resources: [portclaims]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [modelbackend.dev]
  resources: [portclaims/status]
  verbs: [patch]
# Proof of an end: which machine, in which life. And whether anything can still be created in a namespace.
- apiGroups: [""]
  resources: [nodes, namespaces]
  verbs: [get, list, watch]
{{- end }}

{{- define "rules.namespaced" -}}
# The spec is the user's: the operator patches its own finalizer and the status, and creates or deletes none.
- apiGroups: [modelbackend.dev]
  resources: [modelbackends]
  verbs: [get, list, watch, patch]
- apiGroups: [modelbackend.dev]
  resources: [modelbackends/status]
  verbs: [patch]
# Asked for by the admission plugin OwnerReferencesPermissionEnforcement, where it is on.
- apiGroups: [modelbackend.dev]
  resources: [modelbackends/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [pods/status]
  verbs: [patch]
- apiGroups: [""]
  resources: [services]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, delete]
# Each backend's control token is made here. The operator derives tokens, so it need not, and cannot, read any.
- apiGroups: [""]
  resources: [secrets]
  verbs: [create]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
# Read with the operator's label only. Written in the operator's own namespace only: see the Role.
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [list, watch]
{{- end }}
