{{- define "name" -}}
{{ .Values.fullnameOverride }}
{{- end }}

{{- define "labels" -}}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
app.kubernetes.io/name: {{ include "name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "selector" -}}
app.kubernetes.io/name: {{ include "name" . }}
{{- end }}

{{- define "image" -}}
{{ .repository }}:{{ .tag }}
{{- end }}

{{- /* The namespaces to look after, the operator's own among them; empty: all. */ -}}
{{- define "namespaces" -}}
{{- if .Values.watchNamespaces -}}
{{ append .Values.watchNamespaces .Release.Namespace | uniq | sortAlpha | join "," }}
{{- end -}}
{{- end }}

{{- define "restricted.pod" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "restricted.container" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}
