{{/* Labels of everything. Call with (dict "root" $ "component" "hub"). */}}
{{- define "proctor.labels" -}}
{{ include "proctor.selector" . }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{/* Labels that select a component's pods. The operator's manifests name the same two: pods of trials are let through to them. */}}
{{- define "proctor.selector" -}}
app.kubernetes.io/name: proctor
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "proctor.name" -}}
{{ .root.Release.Name }}-{{ .component }}
{{- end }}

{{/* An image by digest where there is one. */}}
{{- define "proctor.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end }}

{{- define "proctor.keySecret" -}}
{{ .Values.installationKey.existingSecret | default (printf "%s-installation-key" .Release.Name) }}
{{- end }}

{{- define "proctor.databaseSecret" -}}
{{ .Values.postgresql.existingSecret | default (printf "%s-postgresql" .Release.Name) }}
{{- end }}

{{/* What every pod of the installation has: the restricted profile, by uid 1000. */}}
{{- define "proctor.podSecurity" -}}
runAsNonRoot: true
runAsUser: 1000
runAsGroup: 1000
fsGroup: 1000
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "proctor.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "proctor.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* The volume of a component: a claim, or an emptyDir. Call with root, component and persistence. */}}
{{- define "proctor.volume" -}}
{{- if .persistence.enabled -}}
persistentVolumeClaim: {claimName: {{ .persistence.existingClaim | default (include "proctor.name" .) }}}
{{- else -}}
emptyDir: {sizeLimit: {{ .persistence.size }}}
{{- end -}}
{{- end }}

{{/* The claim of a component, unless it is given one. Stops where a claim could never be bound. */}}
{{- define "proctor.claim" -}}
{{- if and .persistence.enabled (not .persistence.existingClaim) }}
{{- if not .persistence.storageClassName }}
{{- $live := lookup "v1" "Namespace" "" "kube-system" }}
{{- $default := dict }}
{{- range (lookup "storage.k8s.io/v1" "StorageClass" "" "").items }}
{{- if eq (dig "metadata" "annotations" "storageclass.kubernetes.io/is-default-class" "" .) "true" }}
{{- $default = . }}
{{- end }}
{{- end }}
{{- if and $live (not $default) }}
{{- fail (printf "%s: the cluster has no default StorageClass. Set %s.storageClassName or %s.existingClaim, or %s.enabled=false for a trial whose results end with the pod." .path .path .path .path) }}
{{- end }}
{{- end }}
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: {{ include "proctor.name" . }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "proctor.labels" . | nindent 4 }}
  annotations:
    helm.sh/resource-policy: keep  # results outlive the release
spec:
  accessModes: [ReadWriteOnce]
  {{- with .persistence.storageClassName }}
  storageClassName: {{ . }}
  {{- end }}
  resources: {requests: {storage: {{ .persistence.size }}}}
{{- end }}
{{- end }}
