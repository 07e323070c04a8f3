{{/* The container, in each mode. */}}
{{- define "informerd.container" -}}
{{- $mode := .Values.mode -}}
{{- $name := include "informerd.fullname" . -}}
name: informerd
image: {{ include "informerd.image" . | quote }}
{{- with .Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
{{- if eq $mode "sidecar" }}
# What makes an init container a sidecar.
restartPolicy: Always
{{- end }}
args: [{{ ternary "injector" "run" (eq $mode "injector") }}]
env:
- {name: INFORMERD_CONFIG, value: /etc/informerd/informerd.yaml}
{{- if eq $mode "node-agent" }}
# A certificate for the address at which clients find the agent of their node; its key never leaves the process.
- {name: INFORMERD_TLS_SIGNER, value: informerd.io/node-serving}
- name: INFORMERD_TLS_NAMES
  valueFrom: {fieldRef: {fieldPath: status.hostIP}}
- name: NODE_NAME
  valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
{{- else }}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- end }}
{{- if eq $mode "tier" }}
{{- if .Values.tier.certManager.enabled }}
- {name: INFORMERD_TLS_CERT_FILE, value: /run/informerd/tls/tls.crt}
- {name: INFORMERD_TLS_KEY_FILE, value: /run/informerd/tls/tls.key}
{{- else }}
{{- include "informerd.authorityEnv" . | nindent 0 }}
{{- end }}
- name: INFORMERD_TLS_NAMES
  value: '{{ $name }}.$(POD_NAMESPACE),{{ $name }}.$(POD_NAMESPACE).svc,{{ $name }}.$(POD_NAMESPACE).svc.{{ .Values.clusterDomain }}'
{{- end }}
{{- if eq $mode "injector" }}
# The CA is made by the first of the pods that comes, kept in the Secret, and published in the webhook's configuration.
- {name: INFORMERD_TLS_CA_SECRET, value: '$(POD_NAMESPACE)/{{ $name }}-ca'}
- {name: INFORMERD_TLS_NAMES, value: '{{ $name }}.$(POD_NAMESPACE).svc'}
- {name: INFORMERD_INJECT_WEBHOOK, value: {{ include "informerd.clusterName" . | quote }}}
- {name: INFORMERD_INJECT_DEPLOYMENT, value: '$(POD_NAMESPACE)/{{ $name }}'}
{{- end }}
{{- with .Values.audiences }}
- {name: INFORMERD_AUTHENTICATION_AUDIENCES, value: {{ join "," . | quote }}}
- {name: INFORMERD_CONSISTENT_READS, value: probe}
- {name: INFORMERD_NOT_SYNCED_THEN, value: "429"}
{{- end }}
{{- if .Values.sidecar.dropIn }}
- {name: INFORMERD_LISTEN, value: 'http://127.0.0.1:8001,https://127.0.0.1:8443'}
- {name: INFORMERD_STATE_DIR, value: /var/lib/informerd}
- {name: INFORMERD_DROP_IN_DIR, value: /run/informerd/account}
{{- end }}
{{- with .Values.env }}
{{- toYaml . | nindent 0 }}
{{- end }}
ports:
{{- if eq $mode "node-agent" }}
- {name: https, containerPort: 8443, hostPort: {{ .Values.nodeAgent.hostPort }}}
{{- else if ne $mode "sidecar" }}
- {name: https, containerPort: 8443}
{{- end }}
# Health and metrics alone, without authentication: numbers and names of what is cached, but no objects.
- {name: probes, containerPort: 8003}
{{- if has $mode (list "tier" "injector") }}
# Nodes learn late that a pod ends, and send new connections to it until then. So SIGTERM, after which it accepts none, comes
# 5 s later. The grace period covers that, drain.timeout (25 s), and a margin.
lifecycle:
  preStop: {sleep: {seconds: 5}}
{{- end }}
{{- include "informerd.probes" . | nindent 0 }}
resources:
  {{- .Values.resources | default (include "informerd.default" . | fromYaml).resources | toYaml | nindent 2 }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
{{- if eq $mode "sidecar" }}
- {name: informerd, mountPath: /etc/informerd, readOnly: true}
{{- if .Values.sidecar.dropIn }}
# The key of the CA, which no other container mounts. It outlives the container, so clients continue to trust it.
- {name: state, mountPath: /var/lib/informerd}
- {name: account, mountPath: /run/informerd/account}
{{- end }}
{{- else }}
- {name: config, mountPath: /etc/informerd, readOnly: true}
{{- if and (ne .Values.snapshots.type "none") (ne $mode "injector") }}
- {name: snapshots, mountPath: /var/lib/informerd}
{{- end }}
{{- if .Values.tier.certManager.enabled }}
- {name: tls, mountPath: /run/informerd/tls, readOnly: true}
{{- end }}
{{- end }}
{{- end -}}

{{/* The CA is made by the first of the pods that comes, kept in the Secret, and published in the ConfigMaps. */}}
{{- define "informerd.authorityEnv" -}}
{{- $ca := printf "$(POD_NAMESPACE)/%s-ca" (include "informerd.fullname" .) -}}
{{- $published := list $ca -}}
{{- range .Values.trust.namespaces -}}{{- $published = append $published (printf "%s/%s" . (include "informerd.trustName" $)) -}}{{- end -}}
- {name: INFORMERD_TLS_CA_SECRET, value: '{{ $ca }}'}
- {name: INFORMERD_TLS_CA_CONFIG_MAPS, value: '{{ join "," $published }}'}
{{- end -}}

{{- define "informerd.probes" -}}
startupProbe:
  httpGet: {path: /readyz, port: probes}
  periodSeconds: 2
  failureThreshold: 120
readinessProbe:
  httpGet: {path: /readyz, port: probes}
  periodSeconds: 5
livenessProbe:
  httpGet: {path: /livez, port: probes}
  periodSeconds: 10
  failureThreshold: 6
{{- end -}}

{{/* The metadata of a pod. Takes the context, the app, and the configuration; a change of the configuration starts new pods. */}}
{{- define "informerd.podMetadata" -}}
labels:
  {{- $own := include "informerd.selector" (dict "root" .root "name" .app) | fromYaml -}}
  {{- $_ := set $own "informerd.io/probes" "true" -}}
  {{- merge $own .root.Values.podLabels .root.Values.commonLabels | toYaml | nindent 2 }}
annotations:
  {{- merge (dict "checksum/config" (sha256sum .config)) .root.Values.podAnnotations .root.Values.commonAnnotations | toYaml | nindent 2 }}
{{- end -}}

{{/* A pod of the tier, a node agent, or an injector. */}}
{{- define "informerd.pod" -}}
{{- $default := include "informerd.default" . | fromYaml -}}
metadata:
  {{- include "informerd.podMetadata" (dict "root" . "app" "informerd" "config" (include "informerd.config" .)) | nindent 2 }}
spec:
  serviceAccountName: {{ include "informerd.account" . | quote }}
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  # A Service of this name would otherwise set INFORMERD_ variables in the container.
  enableServiceLinks: false
  {{- with include "informerd.priorityClass" . }}
  priorityClassName: {{ . }}
  {{- end }}
  terminationGracePeriodSeconds: 40
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with (kindIs "invalid" .Values.tolerations | ternary $default.tolerations .Values.tolerations) }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with (kindIs "invalid" .Values.affinity | ternary $default.affinity .Values.affinity) }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if ne .Values.mode "node-agent" }}
  {{- include "informerd.spread" (dict "root" . "name" "informerd") | nindent 2 }}
  {{- end }}
  {{- if eq .Values.snapshots.type "hostPath" }}
  # Makes informerd's user the owner of the directory. It has no other capability than to change owners.
  initContainers:
  - name: snapshots
    image: {{ .Values.snapshots.hostPath.image | quote }}
    command: [chown, '65532:65532', /var/lib/informerd]
    # chown needs less, but CRI-O starts no container with less than 12 MiB.
    resources:
      requests: {cpu: 1m, memory: 32Mi}
      limits: {memory: 32Mi}
    securityContext:
      runAsNonRoot: false
      runAsUser: 0
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities: {drop: [ALL], add: [CHOWN]}
      seccompProfile: {type: RuntimeDefault}
    volumeMounts:
    - {name: snapshots, mountPath: /var/lib/informerd}
  {{- end }}
  containers:
  -
    {{- include "informerd.container" . | nindent 4 }}
  volumes:
  - name: config
    configMap: {name: {{ include "informerd.configMapName" . }}}
  {{- if eq .Values.mode "injector" }}
  {{- else if eq .Values.snapshots.type "emptyDir" }}
  - name: snapshots
    emptyDir: {sizeLimit: {{ .Values.snapshots.sizeLimit | default $default.sizeLimit }}}
  {{- else if eq .Values.snapshots.type "hostPath" }}
  - name: snapshots
    hostPath: {path: {{ .Values.snapshots.hostPath.path | quote }}, type: DirectoryOrCreate}
  {{- end }}
  {{- if .Values.tier.certManager.enabled }}
  - name: tls
    secret: {secretName: {{ include "informerd.fullname" . }}-tls, defaultMode: 0444}
  {{- end }}
{{- end -}}

{{- define "informerd.spread" -}}
topologySpreadConstraints:
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "informerd.selector" $ | nindent 6 }}
  # Pods of the last version, which are about to go, do not count.
  matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end -}}
