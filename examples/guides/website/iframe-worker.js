// Browsers refuse the worker of the search where a page is opened as a file.
// A hidden frame then runs the script of the worker.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      window.searchWorker = this;
      const frame = document.createElement("iframe");
      frame.hidden = true;
      frame.srcdoc =
        "<script>self.postMessage = (data) => parent.searchWorker" +
        '.dispatchEvent(new MessageEvent("message", { data }));</script>' +
        `<script src="${url}"></script>`;
      this.ready = new Promise((done) => {
        frame.onload = () => done(frame.contentWindow);
      });
      document.body.append(frame);
    }
    postMessage(data) {
      this.ready.then((w) =>
        w.dispatchEvent(new w.MessageEvent("message", { data })),
      );
    }
    terminate() {}
  };
}
