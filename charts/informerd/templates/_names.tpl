{{- define "informerd.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "informerd.signerName" -}}
{{- include "informerd.fullname" . }}-signer
{{- end -}}

{{/* The name of the Roles for reading, and, for sidecars with their namespace, the name of objects without a namespace. */}}
{{- define "informerd.roleName" -}}
{{- printf "%s-%s" (include "informerd.fullname" .) .Values.mode -}}
{{- end -}}

{{- define "informerd.clusterName" -}}
{{- $name := include "informerd.roleName" . -}}
{{- if eq .Values.mode "sidecar" -}}{{- $name = printf "%s-%s" $name .Release.Namespace -}}{{- end -}}
{{- $name -}}
{{- end -}}

{{- define "informerd.configMapName" -}}
{{- if eq .Values.mode "sidecar" -}}{{- include "informerd.roleName" . -}}
{{- else if eq .Values.mode "injector" -}}{{- include "informerd.fullname" . }}-config
{{- else -}}{{- include "informerd.fullname" . -}}{{- end -}}
{{- end -}}

{{/* The ServiceAccount that reads: informerd's own, or that of the pods with the sidecar. */}}
{{- define "informerd.account" -}}
{{- if eq .Values.mode "sidecar" -}}{{- .Values.sidecar.serviceAccountName -}}{{- else -}}{{- include "informerd.fullname" . -}}{{- end -}}
{{- end -}}

{{/* The ServiceAccount that has the CA. */}}
{{- define "informerd.authorityAccount" -}}
{{- if eq .Values.mode "node-agent" -}}{{- include "informerd.signerName" . -}}{{- else -}}{{- include "informerd.fullname" . -}}{{- end -}}
{{- end -}}

{{- define "informerd.trustName" -}}
{{- .Values.trust.configMap | default (ternary "informerd-node-ca" "informerd-ca" (eq .Values.mode "node-agent")) -}}
{{- end -}}

{{- define "informerd.image" -}}
{{- $digest := .Values.image.digest -}}
{{- $tag := .Values.image.tag | default (ternary "" .Chart.AppVersion (ne $digest "")) -}}
{{- .Values.image.repository -}}{{- with $tag -}}:{{ . }}{{- end -}}{{- with $digest -}}@{{ . }}{{- end -}}
{{- end -}}

{{/* The labels by which pods are found; they never change. Takes the context and a name. */}}
{{- define "informerd.selector" -}}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
{{- end -}}

{{/* The metadata of an object. Takes the context and its name; with `cluster` it has no namespace. */}}
{{- define "informerd.metadata" -}}
{{- $root := .root -}}
name: {{ .name | quote }}
{{- if not .cluster }}
namespace: {{ .namespace | default $root.Release.Namespace | quote }}
{{- end }}
labels:
  {{- $own := dict "helm.sh/chart" (printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_") -}}
  {{- $_ := set $own "app.kubernetes.io/name" (.app | default "informerd") -}}
  {{- $_ := set $own "app.kubernetes.io/instance" $root.Release.Name -}}
  {{- $_ := set $own "app.kubernetes.io/version" $root.Chart.AppVersion -}}
  {{- $_ := set $own "app.kubernetes.io/managed-by" $root.Release.Service -}}
  {{- merge $own (.labels | default dict) $root.Values.commonLabels | toYaml | nindent 2 }}
{{- with merge dict (.annotations | default dict) $root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
