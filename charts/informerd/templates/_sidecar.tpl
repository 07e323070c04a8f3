{{/*
The parts of a pod with the sidecar, for charts that have this one as a dependency. Each takes the context of this chart,
`.Subcharts.informerd`, of which the mode is sidecar. README.md shows a Deployment with them.
*/}}

{{/* An element of initContainers, the first one. */}}
{{- define "informerd.sidecar.container" -}}
{{- if ne .Values.mode "sidecar" -}}{{- fail "informerd.sidecar.container: set mode: sidecar for the chart informerd" -}}{{- end -}}
- {{ include "informerd.container" . | nindent 2 | trim }}
{{- end -}}

{{/* Elements of volumes. */}}
{{- define "informerd.sidecar.volumes" -}}
- name: informerd
  configMap: {name: {{ include "informerd.configMapName" . }}}
{{- if .Values.sidecar.dropIn }}
- name: state
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
- name: account
  emptyDir: {medium: Memory, sizeLimit: 1Mi}
{{- end }}
{{- end -}}

{{/* Labels of the pod: Prometheus finds it by them. */}}
{{- define "informerd.sidecar.labels" -}}
informerd.io/probes: "true"
{{- end -}}

{{/* Annotations of the pod: a change of the configuration starts new pods. */}}
{{- define "informerd.sidecar.annotations" -}}
checksum/informerd: {{ include "informerd.config" . | sha256sum }}
{{- end -}}

{{/* With dropIn, elements of env of the program's container. */}}
{{- define "informerd.sidecar.clientEnv" -}}
- {name: KUBERNETES_SERVICE_HOST, value: 127.0.0.1}
- {name: KUBERNETES_SERVICE_PORT, value: "8443"}
{{- end -}}

{{/* With dropIn, elements of volumeMounts of the program's container, in the place of what the kubelet would mount there. */}}
{{- define "informerd.sidecar.clientMounts" -}}
- {name: account, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end -}}
