// The search of the site runs in a worker, and browsers start no worker for a page that was opened as a file. For such a page,
// this class runs the script of the worker in a hidden frame. The name of this file tells the plugin `offline` of the theme
// not to load one with the same purpose from another host.
class FrameWorker extends EventTarget {
  constructor(url) {
    super()
    this.frame = document.createElement("iframe")
    this.frame.hidden = true
    document.body.append(this.frame)
    const scope = this.frame.contentWindow
    scope.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
    this.ready = new Promise((resolve, reject) => {
      const script = scope.document.createElement("script")
      script.src = new URL(url, location.href)
      script.onload = resolve
      script.onerror = reject
      scope.document.head.append(script)
    })
  }

  postMessage(data) {
    this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })))
  }

  terminate() {
    this.frame.remove()
  }
}

if (location.protocol === "file:") {
  window.Worker = FrameWorker
}
