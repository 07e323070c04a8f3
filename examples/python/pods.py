import informerd

for event in informerd.watch("v1/pods"):
    print(event.type, event.key, flush=True)  # event.object is the pod, a dict
