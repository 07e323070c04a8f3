{{/* The defaults of each mode. */}}
{{- define "informerd.defaults" -}}
tier:
  priorityClassName: system-cluster-critical
  affinity: {}
  tolerations: []
  sizeLimit: 2Gi
  resources:
    requests: {cpu: 200m, memory: 1Gi}
    limits: {memory: 1Gi}
node-agent:
  priorityClassName: system-node-critical
  # A virtual node runs no containers of a DaemonSet; the tolerations below would place one there.
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions:
          - {key: type, operator: NotIn, values: [virtual-kubelet]}
          - {key: eks.amazonaws.com/compute-type, operator: NotIn, values: [fargate]}
  # On every other node, also while it is drained or short of something.
  tolerations:
  - operator: Exists
  sizeLimit: 512Mi
  resources:
    {{- if .Values.nodeAgent.allPods }}
    requests: {cpu: 100m, memory: 768Mi}
    limits: {memory: 768Mi}
    {{- else }}
    requests: {cpu: 50m, memory: 256Mi}
    limits: {memory: 256Mi}
    {{- end }}
sidecar:
  resources:
    requests: {cpu: 20m, memory: 128Mi}
    limits: {memory: 128Mi}
injector:
  priorityClassName: system-cluster-critical
  affinity: {}
  tolerations: []
  resources:
    requests: {cpu: 10m, memory: 128Mi}
    limits: {memory: 128Mi}
{{- end -}}

{{- define "informerd.default" -}}
{{- index (include "informerd.defaults" . | fromYaml) .Values.mode | toYaml -}}
{{- end -}}

{{/* The priority class of the pods, and that of the signer's; empty means none. */}}
{{- define "informerd.priorityClass" -}}
{{- kindIs "invalid" .Values.priorityClassName | ternary (include "informerd.default" . | fromYaml).priorityClassName .Values.priorityClassName -}}
{{- end -}}

{{- define "informerd.signerPriorityClass" -}}
{{- kindIs "invalid" .Values.priorityClassName | ternary "system-cluster-critical" .Values.priorityClassName -}}
{{- end -}}

{{/* informerd's configuration: the mode's file, and the values over it. */}}
{{- define "informerd.config" -}}
{{- $file := ternary "all-pods" .Values.mode (and (eq .Values.mode "node-agent") .Values.nodeAgent.allPods) -}}
{{- $config := .Files.Get (printf "files/%s.yaml" $file) | fromYaml -}}
{{- if eq .Values.snapshots.type "none" -}}{{- $_ := unset $config "snapshots" -}}{{- end -}}
{{- if and (eq .Values.mode "injector") .Values.injector.clientCa -}}
  {{- $_ := set $config "authentication" (dict "clientCa" "/etc/informerd/clients.crt") -}}
{{- end -}}
{{- include "informerd.merge" (dict "into" $config "over" .Values.config) -}}
{{- toYaml $config -}}
{{- end -}}

{{- define "informerd.signerConfig" -}}
{{- $config := .Files.Get "files/signer.yaml" | fromYaml -}}
{{- include "informerd.merge" (dict "into" $config "over" .Values.nodeAgent.signer.config) -}}
{{- toYaml $config -}}
{{- end -}}

{{/*
Changes `into`, and writes nothing: maps are merged, everything else is replaced, null takes away. (sprig's mergeOverwrite does not
take away, and a way through YAML would make 2e+06 of a large number.)
*/}}
{{- define "informerd.merge" -}}
{{- $into := .into -}}
{{- range $key, $value := .over -}}
  {{- if kindIs "invalid" $value -}}
    {{- $_ := unset $into $key -}}
  {{- else if and (kindIs "map" $value) (kindIs "map" (get $into $key)) -}}
    {{- include "informerd.merge" (dict "into" (get $into $key) "over" $value) -}}
  {{- else -}}
    {{- $_ := set $into $key $value -}}
  {{- end -}}
{{- end -}}
{{- end -}}
