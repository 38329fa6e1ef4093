// The parts of Apache ECharts that the pages draw with, as the one global `echarts.init`.
import * as core from "echarts/core";
import { CustomChart, LineChart } from "echarts/charts";
import { GridComponent, MarkLineComponent } from "echarts/components";
import { LabelLayout } from "echarts/features";
import { CanvasRenderer } from "echarts/renderers";

core.use([CustomChart, LineChart, GridComponent, MarkLineComponent, LabelLayout, CanvasRenderer]);
globalThis.echarts = { init: core.init };
