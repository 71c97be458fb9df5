{{/* The name of the release's objects. */}}
{{- define "toolyard.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* What selects the pods of one kind: root, component. */}}
{{- define "toolyard.selector" -}}
app.kubernetes.io/name: {{ .root.Chart.Name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* The labels of an object: root, component. */}}
{{- define "toolyard.labels" -}}
{{ include "toolyard.selector" . }}
app.kubernetes.io/version: {{ .root.Values.image.tag | default .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{/* An image: root, image. */}}
{{- define "toolyard.image" -}}
{{- with .root.Values.image.registry }}{{ . }}/{{ end -}}
{{ .image }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}
{{- end }}

{{/* A worker's settings: those of all workers, and its own. */}}
{{- define "toolyard.worker" -}}
{{ mergeOverwrite (deepCopy .root.Values.workerDefaults) (deepCopy .own) | toYaml }}
{{- end }}

{{/* Variables for flags: a map of flags, whose lists become lines. */}}
{{- define "toolyard.settings" -}}
{{- range $flag, $value := . }}
{{- if not (kindIs "invalid" $value) }}
- name: TOOLYARD_{{ $flag | replace "-" "_" | upper }}
{{- if kindIs "slice" $value }}
  value: {{ join "\n" $value | quote }}
{{- else if kindIs "float64" $value }}
  value: {{ $value | int64 | quote }}
{{- else }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* What every process needs to reach NATS, and where its metrics are: root. */}}
{{- define "toolyard.common" -}}
- name: TOOLYARD_NATS
  value: {{ required "nats.url: name the NATS system" .Values.nats.url | quote }}
{{- if .Values.nats.ca }}
- name: TOOLYARD_NATS_CA
  value: /secrets/ca.pem
{{- end }}
{{- if .Values.nats.credentials }}
- name: TOOLYARD_CREDS
  value: /secrets
{{- end }}
- name: TOOLYARD_METRICS_LISTEN
  value: "0.0.0.0:{{ .Values.metricsPort }}"
{{- end }}

{{/* What every pod has: root, component, own (nodeSelector, tolerations). */}}
{{- define "toolyard.pod" -}}
serviceAccountName: {{ include "toolyard.name" .root }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets: {{- range . }}
  - name: {{ . }}{{ end }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .own.nodeSelector | default .root.Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .own.tolerations | default .root.Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.topologySpread }}
topologySpreadConstraints:
{{- range . }}
  - {{- toYaml . | nindent 4 }}
    labelSelector:
      matchLabels: {{- include "toolyard.selector" $ | nindent 8 }}
    matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end }}
{{- end }}

{{/* Nobody's rights: the user of the images, whose group may read the secrets. */}}
{{- define "toolyard.user" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
{{- end }}

{{- define "toolyard.container" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}

{{/* A process that waits for NATS is alive and not ready. */}}
{{- define "toolyard.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 2
  timeoutSeconds: 4
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: metrics}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: metrics}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 2
{{- end }}
